// The pictures in place of the list: the sequence of a session, and an overview. The server draws
// them; the page inserts what a picture consists of, and nothing else.
import { announce, toast } from "./announce.js";
import { apiText } from "./api.js";
import { copyText } from "./clipboard.js";
import { byId, h } from "./dom.js";
import { setIcon } from "./icons.js";
import { exported } from "./source.js";
import { beginStep, emit, on, view, writeHash } from "./state.js";
import { store } from "./store.js";

const pic = { go: null, body: null, of: null, bar: null, request: null, timer: 0, text: "", key: "", last: 0 };

// initPicture prepares the place of pictures. go(capture, n) shows the row of an event in the list.
export function initPicture(go) {
  pic.go = go;
  pic.body = h("div", { class: "picture-body", tabindex: "0", role: "region", "aria-label": "What the picture shows" });
  pic.of = h("select", { id: "picture-of", on: { change: () => showPicture("sequence", ...pic.of.value.split("/")) } });
  const button = (name, label, run) => {
    const b = h("button", { type: "button", class: "icon", "aria-label": label, title: label, on: { click: run } });
    setIcon(b, name);
    return b;
  };
  pic.kinds = ["sequence", "overview"].map((k) => h("button", { type: "button", "data-kind": k, text: k === "sequence" ? "Sequence" : "Overview", on: { click: () => showPicture(k, ...view.of.split("/")) } }));
  pic.mermaid = h("button", { type: "button", text: "Copy Mermaid", on: { click: copyMermaid } });
  pic.bar = h("header", { class: "picture-bar" },
    h("div", { class: "segments", role: "group", "aria-label": "Picture" }, ...pic.kinds),
    (pic.ofLabel = h("label", { class: "picture-of" }, h("span", { text: "Of" }), pic.of)),
    h("span", { class: "grow" }), pic.mermaid,
    h("button", { type: "button", text: "Save SVG", on: { click: save } }),
    button("close", "Close the picture", closePicture));
  pic.bar.lastChild.title = "Close the picture (Esc)";
  byId("picture").append(pic.bar, pic.body);
  pic.body.addEventListener("click", clicked);
  pic.body.addEventListener("keydown", (e) => (e.key === "Enter" || e.key === " ") && clicked(e));
  on("drawn", refresh);
  on("sessions", drawScopes);
  new ResizeObserver(() => view.picture && refresh()).observe(pic.body);
  drawPicture();
}

// showPicture shows a picture, of a session or, without it, of a capture or of everything.
export function showPicture(kind, capture, session) {
  beginStep();
  view.picture = kind;
  view.of = capture ? scopeOf(capture, session) : "";
  writeHash();
  drawPicture();
  announce(kind === "sequence" ? "Sequence" : "Overview");
  pic.body.focus({ preventScroll: true });
}

// scopeOf returns the scope of a session. A bridge's sides are sessions of one capture, and belong
// into one picture.
function scopeOf(capture, session) {
  const bridge = store.sessions.some((s) => s.capture === capture && s.side);
  return bridge || session === undefined || session === "" ? capture : capture + "/" + session;
}

// closePicture shows the list again.
export function closePicture() {
  view.picture = "";
  writeHash();
  drawPicture();
  byId("grid").querySelector('.row[tabindex="0"]')?.focus();
}

// drawPicture shows what the address says.
export function drawPicture() {
  const open = !!view.picture;
  byId("picture").hidden = !open;
  byId("main").classList.toggle("pictured", open);
  emit("buttons");
  if (!open) return;
  for (const b of pic.kinds) b.setAttribute("aria-pressed", String(b.dataset.kind === view.picture));
  pic.ofLabel.hidden = pic.mermaid.hidden = view.picture !== "sequence";
  pic.key = "";
  drawScopes();
  read();
}

function drawScopes() {
  if (!view.picture) return;
  const scopes = new Map([["", "Everything"]]);
  for (const s of store.sessions) {
    const of = scopeOf(s.capture, s.session || 0);
    const many = store.sessions.filter((x) => x.capture === s.capture).length > 1;
    if (!scopes.has(of)) scopes.set(of, scopeName(s, of) + (of !== s.capture && many ? ", session " + (s.session || 0) : "") + ", " + new Date(s.first).toLocaleTimeString());
  }
  if (view.of && !scopes.has(view.of)) scopes.set(view.of, view.of);
  const key = JSON.stringify([...scopes]) + view.of;
  if (pic.scopes === key) return;
  pic.scopes = key;
  pic.of.replaceChildren(...[...scopes].slice(-300).map(([value, text]) => h("option", { value, text })));
  pic.of.value = view.of;
}

// scopeName returns the name of the scope of a session. A bridge or gateway has the name of its
// capture.
function scopeName(s, of) {
  const bridge = of === s.capture && s.side;
  const name = (bridge && store.sources.find((x) => x.id === s.capture)?.name) || s.name || s.capture;
  if (!bridge) return name;
  const servers = new Set(store.sessions.filter((x) => x.capture === s.capture && x.side === "upstream").map((x) => x.name));
  return name + (servers.size > 1 ? " (gateway)" : " (bridge)");
}

function refresh() {
  if (!view.picture || pic.timer) return;
  pic.timer = setTimeout(() => {
    pic.timer = 0;
    if (view.picture) read();
  }, Math.max(0, pic.last + 1200 - performance.now()));
}

function query(as) {
  const p = new URLSearchParams({ width: String(Math.max(320, Math.round(pic.body.clientWidth - 24))) });
  if (view.picture === "sequence" && view.of) p.set("of", view.of);
  if (view.filter) p.set("filter", view.filter);
  if (as) p.set("as", as);
  return "/api/picture/" + view.picture + "?" + p;
}

async function read() {
  pic.last = performance.now();
  pic.request?.abort();
  const control = (pic.request = new AbortController());
  try {
    const text = exported ? exportedPicture() : await apiText(query(""), control.signal);
    if (text === pic.text && pic.key === view.picture) return;
    pic.text = text;
    pic.key = view.picture;
    insert(text);
  } catch (e) {
    if (e.name !== "AbortError") pic.body.replaceChildren(h("p", { class: "note bad", text: e.message }));
  }
}

function exportedPicture() {
  const p = exported.pictures || {};
  const text = view.picture === "overview" ? p.overview : (p.sequences || {})[view.of];
  if (!text) throw new Error("This page was exported without this picture.");
  return text;
}

const elements = new Set(["svg", "g", "path", "rect", "line", "circle", "text", "tspan", "title", "desc"]);
const attributes = new Set(["class", "d", "x", "y", "x1", "x2", "y1", "y2", "dx", "dy", "cx", "cy", "r", "rx", "width", "height", "viewBox", "transform", "text-anchor", "role", "aria-label", "aria-labelledby", "id", "data-capture", "data-n", "tabindex", "textLength", "lengthAdjust"]);

// In a form that is not an element where an exported page contains this script.
const styleSheet = /<s(?:tyle)>[^]*?<\/s(?:tyle)>/;

// insert shows a picture: a copy of the known elements and attributes of an SVG.
function insert(text) {
  // Without its style sheet, which the policy of the page forbids: the page has the same rules.
  const doc = new DOMParser().parseFromString(text.replace(styleSheet, ""), "image/svg+xml");
  const [x, y] = [pic.body.scrollLeft, pic.body.scrollTop];
  const same = pic.body.firstElementChild?.dataset?.kind === view.picture;
  const el = copy(doc.documentElement);
  if (!el) {
    pic.body.replaceChildren(h("p", { class: "note bad", text: "The picture is damaged." }));
    return;
  }
  el.dataset.kind = view.picture;
  pic.body.replaceChildren(el);
  if (same) pic.body.scrollTo(x, y);
}

function copy(from) {
  if (!elements.has(from.localName)) return null;
  const el = document.createElementNS("http://www.w3.org/2000/svg", from.localName);
  for (const a of from.attributes) if (attributes.has(a.name)) el.setAttribute(a.name, a.value);
  for (const node of from.childNodes) {
    if (node.nodeType === Node.TEXT_NODE) el.append(node.data);
    else if (node.nodeType === Node.ELEMENT_NODE) {
      const inside = copy(node);
      if (inside) el.append(inside);
    }
  }
  return el;
}

function clicked(e) {
  const el = e.target.closest("[data-n]");
  if (!el) return;
  e.preventDefault();
  closePicture();
  pic.go(el.dataset.capture, Number(el.dataset.n));
}

function save() {
  if (!pic.text) return;
  const url = URL.createObjectURL(new Blob([pic.text], { type: "image/svg+xml" }));
  const a = h("a", { href: url, download: "mcpwire-" + view.picture + ".svg" });
  a.click();
  setTimeout(() => URL.revokeObjectURL(url), 10000);
  toast("The browser saves the picture.");
}

async function copyMermaid() {
  try {
    const text = exported ? (exported.pictures?.mermaid || {})[view.of] : await apiText(query("mermaid"));
    if (text) await copyText(text, "as Mermaid, for issues and documents");
    else toast("This page was exported without it.");
  } catch (e) {
    toast(e.message, "bad");
  }
}
