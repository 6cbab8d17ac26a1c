// A form for a JSON schema. The value of a form is JSON text, in which numbers stay as they were
// typed. The schema is not trusted: it decides which controls there are, and nothing else.
import { h } from "./dom.js";
import { indented, member, parseText, rawOf } from "./jsontext.js";
import { escapeLine, isolated } from "./safetext.js";

const maxDepth = 8; // of nested controls; deeper values are JSON
const maxFields = 200; // of an object
const maxOptions = 500; // of an enum

let idCount = 0;
const newId = () => "field-" + ++idCount;

// A control is {el, get, set, problem, find}: get returns JSON text, set takes a value of parseText
// and its text, problem shows a text or hides it, and find returns the control at a list of names.

// schemaForm returns the control of the arguments of a tool. changed is called after each change.
export function schemaForm(schema, changed) {
  const x = { root: schema, changed };
  const s = resolve(x, schema, 0);
  if (!s.properties && s.additionalProperties === undefined && s.type !== "object") return rawControl(x, "{}", "Arguments as JSON");
  return objectControl(x, s, 0, "Arguments");
}

// resolve follows references inside the schema and merges allOf.
function resolve(x, s, depth) {
  if (typeof s !== "object" || s === null || Array.isArray(s)) return {};
  for (let i = 0; i < 20 && typeof s.$ref === "string"; i++) {
    const to = s.$ref.startsWith("#") ? pointed(x.root, s.$ref.slice(1)) : undefined;
    if (typeof to !== "object" || to === null) return {};
    const { $ref, ...rest } = s;
    s = { ...to, ...rest };
  }
  if (Array.isArray(s.allOf) && depth < maxDepth) {
    const { allOf, ...rest } = s;
    const parts = [...allOf.slice(0, 50).map((p) => resolve(x, p, depth + 1)), rest];
    s = Object.assign({}, ...parts);
    s.properties = Object.assign({}, ...parts.map((p) => p.properties || {}));
    s.required = parts.flatMap((p) => (Array.isArray(p.required) ? p.required : []));
  }
  return s;
}

function pointed(root, pointer) {
  let at = root;
  for (const part of decodeURIComponent(pointer).split("/").slice(1)) {
    const name = part.replaceAll("~1", "/").replaceAll("~0", "~");
    if (typeof at !== "object" || at === null || !Object.hasOwn(at, name)) return undefined;
    at = at[name];
  }
  return at;
}

function control(x, schema, depth, label) {
  const s = resolve(x, schema, 0);
  if (depth > maxDepth) return rawControl(x, "null", label);
  const options = optionsOf(x, s);
  if (options) return choiceControl(x, options, label);
  const variants = variantsOf(s);
  if (variants) return unionControl(x, variants, depth, label);
  switch (s.type) {
    case "object":
      return s.properties || s.additionalProperties !== undefined ? objectControl(x, s, depth, label) : rawControl(x, "{}", label);
    case "array":
      return arrayControl(x, s, depth, label);
    case "boolean":
      return choiceControl(x, [{ raw: "false", label: "false" }, { raw: "true", label: "true" }], label);
    case "integer":
    case "number":
      return numberControl(x, s, label);
    case "string":
      return stringControl(x, s, label);
    case "null":
      return choiceControl(x, [{ raw: "null", label: "null" }], label);
  }
  return s.properties ? objectControl(x, s, depth, label) : rawControl(x, "null", label);
}

// optionsOf returns the values of an enum or of constants, or null.
function optionsOf(x, s) {
  if (Object.hasOwn(s, "const")) return [{ raw: JSON.stringify(s.const), label: labelOf(s.const) }];
  if (Array.isArray(s.enum)) return s.enum.slice(0, maxOptions).map((v, i) => ({ raw: JSON.stringify(v), label: String(s.enumNames?.[i] ?? labelOf(v)) }));
  const list = s.oneOf || s.anyOf;
  if (!Array.isArray(list) || !list.length || !list.every((o) => o && typeof o === "object" && Object.hasOwn(o, "const"))) return null;
  return list.slice(0, maxOptions).map((o) => ({ raw: JSON.stringify(o.const), label: typeof o.title === "string" ? o.title : labelOf(o.const) }));
}

function labelOf(v) {
  return typeof v === "string" ? v : JSON.stringify(v);
}

// variantsOf returns the schemas of a union, or null.
function variantsOf(s) {
  const { anyOf, oneOf, ...rest } = s;
  const list = anyOf || oneOf;
  if (Array.isArray(list) && list.length) return list.slice(0, 50).map((v) => (v && typeof v === "object" ? { ...rest, ...v } : {}));
  if (Array.isArray(s.type)) return s.type.length === 1 ? [{ ...s, type: s.type[0] }] : s.type.slice(0, 10).map((type) => ({ ...s, type, title: undefined }));
  return null;
}

// withProblem adds the place of a problem to a control.
function withProblem(c, field) {
  const text = h("p", { class: "field-problem", id: newId(), hidden: true });
  c.el.append(text);
  c.problem = (what) => {
    text.hidden = !what;
    text.replaceChildren(what ? isolated("▲ " + what) : "");
    if (field) {
      field.setAttribute("aria-invalid", String(!!what));
      if (what) field.setAttribute("aria-describedby", text.id);
      else field.removeAttribute("aria-describedby");
    }
  };
  c.find ||= () => c;
  return c;
}

function simple(x, field, get, set) {
  field.addEventListener("input", () => x.changed());
  return withProblem({ el: h("div", { class: "control" }, field), get, set, field }, field);
}

function stringControl(x, s, label) {
  const hint = [s.format, s.minLength && "at least " + s.minLength, s.maxLength && "at most " + s.maxLength, s.pattern].filter(Boolean).join(", ");
  const field = h("textarea", { rows: "1", spellcheck: "false", "aria-label": label, placeholder: escapeLine(hint).slice(0, 200) });
  if (typeof s.default === "string") field.value = s.default;
  return simple(x, field, () => JSON.stringify(field.value), (v, text) => {
    if (v.kind !== "string") return false;
    field.value = v.text;
    return true;
  });
}

const number = /^-?(?:0|[1-9]\d*)(?:\.\d+)?(?:[eE][+-]?\d+)?$/;

function numberControl(x, s, label) {
  const hint = [s.type, s.minimum != null && "≥ " + s.minimum, s.maximum != null && "≤ " + s.maximum].filter(Boolean).join(", ");
  const field = h("input", { type: "text", inputmode: "decimal", autocomplete: "off", "aria-label": label, placeholder: escapeLine(hint) });
  if (typeof s.default === "number") field.value = String(s.default);
  // A text that is no number is sent as a text, so that a server can be tested with it.
  const get = () => (number.test(field.value.trim()) ? field.value.trim() : JSON.stringify(field.value));
  return simple(x, field, get, (v, text) => {
    if (v.kind === "string" && !number.test(v.text.trim())) field.value = v.text;
    else if (v.kind === "number") field.value = rawOf(text, v);
    else return false;
    return true;
  });
}

function choiceControl(x, options, label) {
  const field = h("select", { "aria-label": label }, ...options.map((o, i) => h("option", { value: String(i), text: escapeLine(o.label).slice(0, 200) })));
  return simple(x, field, () => options[Number(field.value)]?.raw ?? "null", (v, text) => {
    const raw = rawOf(text, v);
    const i = options.findIndex((o) => o.raw === raw || (v.kind === "string" && o.raw === JSON.stringify(v.text)));
    if (i >= 0) field.value = String(i);
    return i >= 0;
  });
}

function rawControl(x, initial, label) {
  const field = h("textarea", { class: "code", rows: "2", spellcheck: "false", "aria-label": label + ", as JSON" });
  field.value = initial;
  return simple(x, field, () => field.value.trim() || "null", (v, text) => {
    field.value = indented(rawOf(text, v));
    return true;
  });
}

function unionControl(x, variants, depth, label) {
  const place = h("div", {});
  const name = (v, i) => escapeLine(resolve(x, v, 0).title || resolve(x, v, 0).type || "choice " + (i + 1)).slice(0, 80);
  const pick = h("select", { "aria-label": "Kind of " + label }, ...variants.map((v, i) => h("option", { value: String(i), text: name(v, i) })));
  const c = { el: h("div", { class: "control union" }, pick, place), get: () => c.inner.get(), find: (path) => c.inner.find(path) };
  const show = (i) => {
    pick.value = String(i);
    c.inner = control(x, variants[i], depth + 1, label);
    place.replaceChildren(c.inner.el);
  };
  c.set = (v, text) => {
    for (let i = 0; i < variants.length; i++) {
      show(i);
      if (c.inner.set(v, text)) return true;
    }
    show(0);
    return false;
  };
  pick.addEventListener("change", () => {
    show(Number(pick.value));
    x.changed();
  });
  show(0);
  return withProblem(c, pick);
}

function arrayControl(x, s, depth, label) {
  const options = optionsOf(x, resolve(x, s.items, 0));
  if (options && s.uniqueItems && options.length <= 20) return severalControl(x, options, label);
  const list = h("ol", { class: "items" });
  const items = [];
  const add = () => {
    const item = control(x, s.items ?? {}, depth + 1, label + ", item " + (items.length + 1));
    const remove = h("button", { type: "button", class: "icon", text: "✕", "aria-label": "Remove an item of " + label, on: { click: () => {
      items.splice(items.indexOf(item), 1);
      row.remove();
      x.changed();
    } } });
    const row = h("li", {}, item.el, remove);
    items.push(item);
    list.append(row);
    return item;
  };
  const more = h("button", { type: "button", text: "Add an item", "aria-label": "Add an item to " + label, on: { click: () => {
    add().el.querySelector("input, textarea, select")?.focus();
    x.changed();
  } } });
  const c = {
    el: h("div", { class: "control" }, list, more),
    get: () => "[" + items.map((i) => i.get()).join(", ") + "]",
    set: (v, text) => {
      if (v.kind !== "array") return false;
      items.length = 0;
      list.replaceChildren();
      return v.items.slice(0, 1000).map((i) => add().set(i, text)).every(Boolean);
    },
    find: (path) => (path.length && items[Number(path[0])] ? items[Number(path[0])].find(path.slice(1)) : c),
  };
  return withProblem(c, null);
}

// severalControl returns check boxes for a set of options.
function severalControl(x, options, label) {
  const boxes = options.map(() => h("input", { type: "checkbox", on: { change: () => x.changed() } }));
  const el = h("div", { class: "control several", role: "group", "aria-label": label }, ...options.map((o, i) => h("label", {}, boxes[i], " ", isolated(o.label))));
  return withProblem({
    el,
    get: () => "[" + options.filter((_, i) => boxes[i].checked).map((o) => o.raw).join(", ") + "]",
    set: (v, text) => {
      if (v.kind !== "array") return false;
      const raws = v.items.map((i) => (i.kind === "string" ? JSON.stringify(i.text) : rawOf(text, i)));
      options.forEach((o, i) => (boxes[i].checked = raws.includes(o.raw)));
      return raws.every((r) => options.some((o) => o.raw === r));
    },
  }, null);
}

function objectControl(x, s, depth, label) {
  const required = Array.isArray(s.required) ? s.required : [];
  const fields = new Map();
  const el = h("div", { class: "control object", role: "group", "aria-label": label });
  const c = { el };
  const add = (name, schema, opts) => {
    const f = fieldOf(x, name, schema, { ...opts, depth, label: depth ? label + "." + escapeLine(name) : escapeLine(name), remove: () => fields.delete(name) });
    fields.set(name, f);
    el.insertBefore(f.el, c.more || null);
    return f;
  };
  if (s.additionalProperties !== false && (depth === 0 ? s.additionalProperties !== undefined || !s.properties : true)) {
    const name = h("input", { type: "text", "aria-label": "Name of a further member of " + label, placeholder: "further member" });
    const button = h("button", { type: "button", text: "Add", "aria-label": "Add a member to " + label, on: { click: () => {
      if (name.value && !fields.has(name.value)) add(name.value, s.additionalProperties === true ? {} : s.additionalProperties ?? {}, { extra: true }).el.querySelector(".control :is(input, textarea, select)")?.focus();
      name.value = "";
      x.changed();
    } } });
    c.more = h("div", { class: "further" }, name, button);
    el.append(c.more);
  }
  for (const [name, schema] of Object.entries(s.properties || {}).slice(0, maxFields)) add(name, schema, { required: required.includes(name) });
  c.get = () => "{" + [...fields].filter(([, f]) => f.included()).map(([name, f]) => JSON.stringify(name) + ": " + f.get()).join(", ") + "}";
  c.set = (v, text) => {
    if (v.kind !== "object") return false;
    let all = true;
    for (const [name, f] of [...fields]) {
      const value = member(v, name);
      f.include(!!value);
      if (value) all = f.set(value, text) && all;
      else if (f.extra) f.drop();
    }
    for (const m of v.members) {
      if (fields.has(m.name) || fields.size >= maxFields) continue;
      add(m.name, {}, { extra: true }).set(m.value, text);
    }
    return all;
  };
  c.find = (path) => (path.length && fields.has(path[0]) ? fields.get(path[0]).find(path.slice(1)) : c);
  return withProblem(c, null);
}

// fieldOf returns a member of an object with its name. An optional one has a check box: the member
// is sent if it is checked, and a change of its value checks it.
function fieldOf(x, name, schema, opts) {
  const s = resolve(x, schema, 0);
  const box = h("input", { type: "checkbox", "aria-label": "Send " + opts.label, checked: !!opts.required || !!opts.extra, disabled: !!opts.required, on: { change: () => x.changed() } });
  const include = (on) => (box.checked = on || !!opts.required);
  const inner = { ...x, changed: () => {
    include(true);
    x.changed();
  } };
  let value = control(inner, schema, opts.depth + 1, opts.label);
  const f = { extra: !!opts.extra, included: () => box.checked, include, get: () => value.get() };
  const place = h("div", { class: "field-value" }, value.el);
  f.set = (v, text) => {
    include(true);
    if (value.set(v, text)) return true;
    // The value does not fit its schema. It stays, as JSON.
    value = rawControl(inner, "null", opts.label);
    place.replaceChildren(value.el);
    return value.set(v, text);
  };
  f.find = (path) => value.find(path);
  const title = typeof s.title === "string" && s.title !== name ? s.title : "";
  const head = h("div", { class: "field-head" }, box, isolated(name, "field-name"), opts.required ? h("span", { class: "field-required", text: "required" }) : null, title ? isolated(title, "quiet") : null);
  f.drop = () => {
    f.el.remove();
    opts.remove();
    x.changed();
  };
  if (opts.extra) head.append(h("button", { type: "button", class: "icon", text: "✕", "aria-label": "Remove " + opts.label, on: { click: f.drop } }));
  const about = [typeof s.description === "string" ? s.description : "", s.default !== undefined ? "Default: " + labelOf(s.default) : ""].filter(Boolean).join(" ");
  f.el = h("div", { class: "field" }, head, about ? h("p", { class: "field-about" }, isolated(about.slice(0, 1000))) : null, place);
  return f;
}
