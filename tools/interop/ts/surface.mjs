// The tools, resources and prompts of all servers here; see surface_test.go. The first argument is
// JSON with the texts of that file. This module works with the server classes of both SDKs. The
// dialect has their differences:
//
//   completable, optional(values), template(uri, callbacks), notFound(uri)  of the SDK
//   progress(ctx, params), log(ctx, level, data, logger), signal(ctx)
//   ask(ctx, kind, params)  sends an input request, and returns the response as answer, or as
//                           required the result that the handler must return to send it
//   extended()              announces the tool extra, if the server of the call does not do this
//
// The state of tools belongs to the process, because there may be a server for each request.
import { z } from "zod";

/** The texts of the Go test. */
export const words = JSON.parse(process.argv[2]);

const text = (value) => ({ content: [{ type: "text", text: value }] });
const startsWith = (values) => (value) => values.filter((v) => v.startsWith(value ?? ""));
const greeting = { type: "resource", resource: { uri: words.greetingURI, mimeType: "text/plain", text: words.greetingText } };

/** Resolves after ms milliseconds, or rejects when the signal aborts. */
function delay(ms, signal) {
  return new Promise((resolve, reject) => {
    const timer = setTimeout(resolve, ms);
    signal?.addEventListener("abort", () => (clearTimeout(timer), reject(new Error("aborted"))));
  });
}

let extended = false;
let cancelled = 0;
let wake = () => {};

/** Registers everything but tasks and subscriptions. */
export function register(server, dialect, updated) {
  addTools(server, dialect);
  addInputTools(server, dialect);
  addResources(server, dialect);
  addPrompts(server, dialect);
  const extra = () => server.registerTool("extra", { inputSchema: {} }, async () => text("extra"));
  if (extended) {
    extra();
  }
  server.registerTool("extend", { inputSchema: {} }, async () => {
    extended = true;
    (dialect.extended ?? extra)();
    return text("extended");
  });
  server.registerTool("touch", { inputSchema: { uri: z.string() } }, async ({ uri }) => {
    await updated(uri);
    return text("touched");
  });
}

function addTools(server, dialect) {
  server.registerTool("echo", { inputSchema: { text: z.string() } }, async (args) => text(args.text));
  server.registerTool(
    "sum",
    { inputSchema: { a: z.number().int(), b: z.number().int() }, outputSchema: { sum: z.number().int() }, annotations: { readOnlyHint: true } },
    async ({ a, b }) => ({ ...text(JSON.stringify({ sum: a + b })), structuredContent: { sum: a + b } }),
  );
  server.registerTool("fail", { inputSchema: { message: z.string() } }, async ({ message }) => {
    throw new Error(message);
  });
  server.registerTool("slow", { inputSchema: { steps: z.number().int(), delay_ms: z.number().int() } }, async ({ steps, delay_ms }, ctx) => {
    try {
      for (let i = 1; i <= steps; i++) {
        await delay(delay_ms, dialect.signal(ctx));
        await dialect.progress(ctx, { progress: i, total: steps, message: "a step" });
      }
    } catch (error) {
      cancelled++;
      wake();
      throw error;
    }
    return text(`done after ${steps} steps`);
  });
  server.registerTool("cancelled", { inputSchema: {} }, async () => {
    if (cancelled === 0) {
      await Promise.race([new Promise((resolve) => (wake = resolve)), delay(10_000)]);
    }
    return text(cancelled-- > 0 ? "cancelled" : "nothing was cancelled");
  });
  server.registerTool("log", { inputSchema: {} }, async (_, ctx) => {
    for (const { level, text } of words.logged) {
      await dialect.log(ctx, level, text, "surface");
    }
    return text("logged");
  });
  server.registerTool("media", { inputSchema: {} }, async () => ({
    content: [
      { type: "text", text: "text" },
      { type: "image", data: words.pixel, mimeType: "image/png" },
      { type: "audio", data: words.pixel, mimeType: "audio/wav" },
      { type: "resource_link", uri: words.greetingURI, name: "greeting" },
      greeting,
    ],
  }));
  server.registerTool("crash", { inputSchema: {} }, async () => process.exit(words.crashStatus));
}

/** The input request of the tool ask, and its result. */
export const form = { message: words.askMessage, requestedSchema: words.askSchema };
export const asked = ({ action, content }) => (action === "accept" ? `accept ${content.name} ${content.age}` : action);

function addInputTools(server, dialect) {
  const addTool = (name, kind, params, take) =>
    server.registerTool(name, { inputSchema: {} }, async (_, ctx) => {
      const { answer, required } = await dialect.ask(ctx, kind, params);
      return required ?? text(take(answer));
    });
  addTool("ask", "elicit", form, asked);
  addTool("visit", "visit", { message: words.visitMessage, url: words.visitURL }, ({ action }) => action);
  addTool(
    "sample",
    "sample",
    { messages: [{ role: "user", content: { type: "text", text: words.sampleText } }], maxTokens: 50 },
    ({ content, model }) => `${content.text} by ${model}`,
  );
  addTool("roots", "roots", {}, ({ roots }) => roots.map(({ uri, name }) => [uri, name].filter(Boolean).join(" ")).join(", "));
}

function addResources(server, dialect) {
  for (const uri of ["test://a", "test://b", "test://c"]) {
    server.registerResource(uri, uri, {}, async () => ({ contents: [{ uri, text: `the resource ${uri}` }] }));
  }
  server.registerResource("greeting", words.greetingURI, { mimeType: "text/plain" }, async () => ({ contents: [greeting.resource] }));
  server.registerResource("logo", words.logoURI, { mimeType: "image/png" }, async () => ({
    contents: [{ uri: words.logoURI, mimeType: "image/png", blob: words.logo }],
  }));
  server.registerResource("asked", words.askedURI, {}, async (_, ctx) => {
    const { answer, required } = await dialect.ask(ctx, "elicit", form);
    return required ?? { contents: [{ uri: words.askedURI, text: asked(answer) }] };
  });
  const template = dialect.template(words.itemTemplate, { list: undefined, complete: { id: startsWith(words.items) } });
  server.registerResource("items", template, { mimeType: "text/plain" }, async (url, { id }) => {
    if (id === "none") {
      throw dialect.notFound(url.href);
    }
    return { contents: [{ uri: url.href, mimeType: "text/plain", text: `item ${id}` }] };
  });
}

function addPrompts(server, { completable, optional, ask }) {
  server.registerPrompt("asked", {}, async (ctx) => {
    const { answer, required } = await ask(ctx, "elicit", form);
    return required ?? { messages: [{ role: "user", content: { type: "text", text: asked(answer) } }] };
  });
  const argsSchema = {
    name: completable(z.string(), (value, context) =>
      startsWith(context?.arguments?.style === "formal" ? words.formalNames : words.names)(value),
    ),
    style: optional(startsWith(words.styles)),
  };
  server.registerPrompt("greet", { argsSchema }, async ({ name, style = "friendly" }) => ({
    messages: [
      { role: "user", content: { type: "text", text: `Greet ${name} in a ${style} way.` } },
      { role: "assistant", content: { type: "text", text: `Hello, ${name}!` } },
    ],
  }));
  server.registerPrompt("review", {}, async () => ({ messages: [{ role: "user", content: greeting }] }));
}

/** Returns a page of two resources, or undefined if the cursor is invalid. */
export function page(all, cursor) {
  const from = cursor === undefined ? 0 : Number(cursor);
  if (!Number.isInteger(from)) {
    return undefined;
  }
  return { resources: all.slice(from, from + 2), nextCursor: from + 2 < all.length ? String(from + 2) : undefined };
}

/** The list of resources. */
export const resources = [
  { uri: "test://a", name: "test://a" },
  { uri: "test://b", name: "test://b" },
  { uri: "test://c", name: "test://c" },
  { uri: words.greetingURI, name: "greeting", mimeType: "text/plain" },
  { uri: words.logoURI, name: "logo", mimeType: "image/png" },
  { uri: words.askedURI, name: "asked" },
];
