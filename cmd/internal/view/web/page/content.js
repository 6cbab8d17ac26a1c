// What a message asks for and what comes back, rendered: text, Markdown, images, audio, resources,
// tables. Everything becomes elements from the short lists here, and text nodes.
import { h } from "./dom.js";
import { fmtSize } from "./format.js";
import { linesView, spansInto } from "./lines.js";
import { mediaView } from "./media.js";
import { isolated } from "./safetext.js";
import { preference, setPreference } from "./state.js";

// contentView returns a section with a content of a detail, or null without one.
export function contentView(d, content, title) {
  if (!content?.blocks?.length) return null;
  const blobs = d[content.of]?.blobs || [];
  const box = h("section", { class: "content" + (content.failed ? " failed" : "") }, h("h3", {}, title, content.failed ? h("span", { class: "chip bad", text: "✖ failed" }) : null));
  for (const b of content.blocks) box.append(blockView(b, blobs, title));
  if (content.left) box.append(h("p", { class: "note", text: content.left.toLocaleString("en") + " more blocks not shown." }));
  return box;
}

function blockView(b, blobs, where) {
  const box = h("div", { class: "block b-" + (Object.hasOwn(bodies, b.kind) ? b.kind : "text") });
  const body = (Object.hasOwn(bodies, b.kind) ? bodies[b.kind] : bodies.text)(b, blobs, box, where);
  const head = blockHead(b);
  if (head) box.prepend(head);
  if (body) box.append(body);
  if (b.cut && b.kind !== "media") box.append(h("p", { class: "note", text: fmtSize(b.cut) + " more not shown: see the payload." }));
  return box;
}

function blockHead(b) {
  const parts = [];
  if (b.role) parts.push(h("span", { class: "chip" }, isolated(b.role)));
  if (b.title && b.kind !== "note" && b.kind !== "error") parts.push(isolated(b.title));
  if (b.kind !== "link") {
    if (b.uri) parts.push(isolated(b.uri, "code"));
    if (b.media && b.kind !== "media") parts.push(isolated(b.media, "quiet"));
  }
  return parts.length ? h("p", { class: "block-head" }, ...parts.flatMap((p) => [p, " "])) : null;
}

const bodies = {
  note: (b) => h("p", { class: "hint" }, isolated(b.title), b.name ? [" (", isolated(b.name), ")"] : null),
  text: (b, _, box) => (b.md ? documentView(b, box) : prose(b.lines)),
  json: (b, _, __, where) => linesView(b.lines || [], { tree: true, label: (b.title || "JSON") + " in " + where }),
  table: (b, _, __, where) => tableView(b.table, (b.title || "members") + " in " + where),
  error: (b) => h("div", { class: "note bad" }, h("strong", {}, isolated(b.title)), prose(b.lines)),
  media: (b, blobs) => {
    const blob = blobs[b.blob - 1];
    if (blob) return mediaView(blob);
    return h("p", { class: "hint" }, isolated(b.media || "data"), ", " + fmtSize(b.cut || 0) + ". The Response tab can download it.");
  },
  link: (b) => h("dl", { class: "facts" }, ...[["resource", b.name], ["URI", b.uri], ["type", b.media], ["about", b.about]].filter((x) => x[1]).flatMap(([k, v]) => [h("dt", { text: k }), h("dd", {}, isolated(v))])),
};

// prose returns lines as text that wraps.
function prose(lines) {
  const box = h("div", { class: "prose" });
  for (const l of lines || []) {
    const line = h("bdi", { class: "prose-line" });
    spansInto(line, l.s, true);
    box.append(line);
  }
  return box;
}

// documentView returns Markdown as a document, with a button that shows its text.
function documentView(b, box) {
  const place = h("div", {});
  const button = h("button", { type: "button", class: "link", on: { click: () => {
    setPreference("markdown", preference("markdown", "1") === "1" ? "0" : "1");
    draw();
  } } });
  const draw = () => {
    const shown = preference("markdown", "1") === "1";
    button.textContent = shown ? "Show the Markdown source" : "Show as a document";
    place.replaceChildren(shown ? h("div", { class: "markdown" }, ...nodesView(b.md, 0)) : prose(b.lines));
  };
  draw();
  box.append(place, button);
  return null;
}

// tagOf has the elements of nodes. A heading is below that of its section.
const tagOf = { p: "p", h1: "h4", h2: "h5", h3: "h6", h4: "h6", h5: "h6", h6: "h6", ul: "ul", ol: "ol", li: "li", quote: "blockquote", tr: "tr", th: "th", td: "td", em: "em", strong: "strong", del: "del", code: "code", hr: "hr", br: "br" };

function nodesView(list, depth) {
  return (list || []).map((n) => nodeView(n, depth)).filter(Boolean);
}

function nodeView(n, depth) {
  if (depth > 60) return null;
  const kids = () => nodesView(n.c, depth + 1);
  switch (n.t) {
    case "text": {
      const el = h("span", {});
      spansInto(el, n.s, false);
      return el;
    }
    case "pre":
      return h("div", { class: "pre code" }, prose(n.lines));
    case "table":
      return h("div", { class: "scroll", role: "region", tabindex: "0", "aria-label": "Table" }, h("table", { class: "grid" }, h("tbody", {}, ...kids())));
    case "link":
      return h("span", { class: "md-link" }, ...kids(), h("span", { class: "quiet" }, " (", isolated(n.to), ")"));
    case "image":
      return h("span", { class: "md-link" }, "Image: ", ...kids(), h("span", { class: "quiet" }, " (", isolated(n.to), ")"));
  }
  if (!Object.hasOwn(tagOf, n.t)) return null;
  const el = h(tagOf[n.t], n.t === "th" ? { scope: "col" } : {});
  el.append(...kids());
  if (n.s) spansInto(el, n.s, false);
  return el;
}

// tableView returns an object as names and values, or an array of objects as a table.
function tableView(t, label) {
  const cell = (tag, lines, props) => {
    const el = h(tag, props || {});
    const lead = lines?.some((l) => l.d) ? "code" : "";
    for (const l of lines || []) {
      const line = h("bdi", { class: "prose-line " + lead });
      if (l.d) line.style.setProperty("--d", String(Math.min(l.d, 40)));
      spansInto(line, l.s, true);
      el.append(line);
    }
    return el;
  };
  const table = h("table", { class: t.columns ? "grid" : "grid pairs-table" }, h("caption", { class: "vh", text: label }));
  if (t.columns) table.append(h("thead", {}, h("tr", {}, ...t.columns.map((c) => h("th", { scope: "col" }, isolated(c))))));
  const body = h("tbody", {});
  for (const row of t.rows || []) body.append(h("tr", {}, ...row.map((lines, i) => cell(i === 0 ? "th" : "td", lines, i === 0 ? { scope: "row" } : {}))));
  table.append(body);
  const box = h("div", { class: "scroll", role: "region", tabindex: "0", "aria-label": label }, table);
  return t.left ? h("div", {}, box, h("p", { class: "note", text: t.left.toLocaleString("en") + " more rows not shown." })) : box;
}
