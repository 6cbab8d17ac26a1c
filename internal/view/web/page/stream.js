// The connection to the server: an event stream that is taken up again where it broke off.
import { apiGet } from "./api.js";
import { dropRows, putRows, resetStore, store } from "./store.js";
import { emit } from "./state.js";

const link = { source: null, filter: "", retry: 0, timer: 0, id: "", clear: false };

// connect follows the rows that a filter shows. What was there stays until the first answer.
export function connect(filter) {
  link.filter = filter;
  link.id = "";
  link.retry = 0;
  link.clear = true;
  open();
}

// reconnect tries at once.
export function reconnect() {
  link.retry = 0;
  open();
}

function open() {
  clearTimeout(link.timer);
  if (link.source) link.source.close();
  const p = new URLSearchParams();
  if (link.filter) p.set("filter", link.filter);
  if (link.id) p.set("after", link.id);
  const source = new EventSource("/api/stream?" + p);
  link.source = source;
  const on = (name, f) => source.addEventListener(name, (e) => {
    if (source !== link.source) return;
    if (e.lastEventId) link.id = e.lastEventId;
    f(JSON.parse(e.data));
  });
  on("hello", hello);
  on("rows", putRows);
  on("gone", dropRows);
  on("sources", (list) => emit("sources", (store.sources = list)));
  on("sessions", sessions);
  on("total", (n) => {
    store.total = n;
    emit("total");
  });
  on("searching", (s) => emit("searching", s));
  on("synced", () => {
    store.synced = true;
    emit("synced");
  });
  source.onerror = () => source === link.source && failed(source);
}

const maxSessions = 1000;

// sessions takes cards that are new or have changed.
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
  store.tool = m.tool || "";
  store.expected = m.rows || 0;
  store.total = m.total || 0;
  store.skew = m.now ? m.now - Date.now() : 0;
  if (Math.abs(store.skew) < 1000) store.skew = 0;
  emit("online", m);
}

// failed tries again, later each time. Why it failed is asked elsewhere: an EventSource does not tell.
async function failed(source) {
  source.close();
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
