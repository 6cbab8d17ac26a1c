// The event stream from the server, which resumes after a failure.
import { apiGet, withTicket } from "./api.js";
import { dropRows, putRows, resetStore, setSources, store } from "./store.js";
import { emit } from "./state.js";

const link = { source: null, opening: null, filter: "", retry: 0, timer: 0, id: "", clear: false };

// connect follows the rows that match a filter. The present rows stay until the first event.
export function connect(filter) {
  link.filter = filter;
  link.id = "";
  link.retry = 0;
  link.clear = true;
  open();
}

// reconnect connects without delay.
export function reconnect() {
  link.retry = 0;
  open();
}

async function open() {
  clearTimeout(link.timer);
  if (link.source) link.source.close();
  link.source = null;
  const p = new URLSearchParams();
  if (link.filter) p.set("filter", link.filter);
  if (link.id) p.set("after", link.id);
  const opening = (link.opening = withTicket("/api/stream?" + p).catch(() => ""));
  const path = await opening;
  if (opening !== link.opening) return;
  if (!path) return failed(null);
  const source = new EventSource(path);
  link.source = source;
  const on = (name, f) => source.addEventListener(name, (e) => {
    if (source !== link.source) return;
    if (e.lastEventId) link.id = e.lastEventId;
    f(JSON.parse(e.data));
  });
  on("hello", hello);
  on("rows", putRows);
  on("gone", dropRows);
  on("sources", setSources);
  on("older", (n) => {
    store.older = n;
    emit("sources", store.sources);
  });
  on("sessions", sessions);
  on("total", setTotal);
  on("facets", (f) => emit("facets", (store.facets = f)));
  on("searching", (s) => emit("searching", s));
  on("synced", () => {
    store.synced = true;
    emit("synced");
  });
  source.onerror = () => source === link.source && failed(source);
}

const maxSessions = 1000;

// sessions adds or replaces sessions.
function sessions(list) {
  const by = new Map(store.sessions.map((c) => [c.capture + " " + (c.session || 0), c]));
  for (const c of list) by.set(c.capture + " " + (c.session || 0), c);
  store.sessions = [...by.values()].slice(-maxSessions);
  emit("sessions", store.sessions);
}

function hello(m) {
  link.retry = 0;
  if (m.reset || link.clear || (store.hub && store.hub !== m.hub)) resetStore();
  link.clear = false;
  store.hub = m.hub;
  store.expected = m.rows || 0;
  setTotal(m.total || {});
  store.skew = m.now ? m.now - Date.now() : 0;
  if (Math.abs(store.skew) < 1000) store.skew = 0;
  emit("online", m);
}

// setTotal takes of how many rows the page has how many.
function setTotal(t) {
  const before = store.evicted;
  store.total = t.rows || 0;
  store.evicted = t.evicted || 0;
  store.running = t.running || 0;
  store.whole = t.whole ? { matches: t.matches || 0, read: t.read || 0 } : null;
  emit("total", before !== store.evicted);
}

// failed connects again with a growing delay. An EventSource does not tell why it failed, so
// another request finds out.
async function failed(source) {
  source?.close();
  const wait = Math.min(15000, 500 * 2 ** link.retry++);
  link.timer = setTimeout(open, wait);
  emit("offline", { wait, message: "" });
  try {
    await apiGet("/api/filter?text=");
  } catch (e) {
    if (e.status === 401 || e.status === 403) {
      clearTimeout(link.timer);
      emit("offline", { wait: 0, message: e.message });
    }
  }
}
