// The visit of a guest, for clients of both TypeScript SDKs. The first argument is the job as JSON:
// the server, and the features that the guest supports. The guest prints its report as JSON. See
// guest_test.go for both.

/** The job of the Go test. */
export const job = JSON.parse(process.argv[2]);

const { able, words } = job;

/** The input requests and notifications that the client's handlers got. */
export const received = { questions: [], log: [], events: [] };

/** The client's handlers. */
export const handlers = {
  elicit: ({ mode, url, message, requestedSchema }) => {
    if (mode === "url") {
      received.questions.push(`visit ${url}: ${message}`);
      return { action: "accept" };
    }
    const { name, age } = requestedSchema.properties;
    received.questions.push(`form name:${name.type} age:${age.type}: ${message}`);
    return { action: "accept", content: { name: "Ada", age: 36 } };
  },
  sample: ({ messages: [{ role, content }], maxTokens }) => {
    received.questions.push(`sample ${role} up to ${maxTokens}: ${content.text}`);
    return { role: "assistant", model: "test-model", stopReason: "endTurn", content: { type: "text", text: "hello" } };
  },
  roots: () => ({ roots: [{ uri: "file:///projects/a", name: "Project A" }, { uri: "file:///projects/b" }] }),
  log: ({ level, logger, data }) => received.log.push(`${level} ${logger} ${data}`),
  updated: ({ uri }) => received.events.push(`updated ${uri}`),
  changed: () => received.events.push("tools changed"),
};

/** The capabilities that the client declares in addition to those of the SDK. */
export const capabilities = { elicitation: { form: {}, url: {} }, sampling: {}, roots: {} };

/** Resolves when the list has length elements. Rejects after 20 seconds. */
async function waitForLength(list, length) {
  const end = Date.now() + 20_000;
  while (list.length < length) {
    if (Date.now() > end) {
      throw new Error(`timeout: want ${length} elements in ${JSON.stringify(list)}`);
    }
    await new Promise((resolve) => setTimeout(resolve, 1));
  }
}

const lines = ({ messages }) => messages.map(({ role, content }) => `${role}: ${content.text}`);
const contents = ({ contents: [{ mimeType = "", text, blob }] }) => `${mimeType} ${text ?? blob}`;

/** Returns the code of a call's error, or 0. */
async function code(call) {
  try {
    await call;
    return 0;
  } catch (error) {
    return error.code ?? 0;
  }
}

/** Returns the names in all pages of a list. The SDKs return single pages. */
async function all(list, member, name) {
  const names = [];
  let cursor;
  do {
    const page = await list(cursor === undefined ? undefined : { cursor });
    names.push(...page[member].map((item) => item[name]));
    cursor = page.nextCursor;
  } while (cursor !== undefined);
  return names.sort();
}

/**
 * Makes the visit of a connected client, closes the client and prints the report. The dialect has
 * the differences between the SDKs: revision(client), call(params, options), which calls a tool,
 * endSession(), logFrom(client, level), which returns the _meta of calls, watch(client, uri), and
 * runTasks(client).
 */
export async function visit(client, dialect) {
  const report = { revision: dialect.revision(client), server: client.getServerVersion()?.name, instructions: client.getInstructions(), failure: "" };
  const text = async (name, args = {}, _meta) => {
    const { content, isError } = await client.callTool({ name, arguments: args, ...(_meta && { _meta }) });
    if (isError) {
      throw new Error(`${name}: ${content[0].text}`);
    }
    return content[0].text;
  };
  try {
    await list(client, report);
    await read(client, report);
    report.slow = await callSlow(dialect.call, text);
    await respond(client, report, text);
    if (able.log) {
      const meta = await dialect.logFrom(client, "info");
      await text("log", {}, meta);
      await waitForLength(received.log, 2);
    }
    report.log = received.log;
    report.tasks = able.tasks ? await dialect.runTasks(client) : {};
    report.questions = received.questions;
    if (able.subscribe) {
      await dialect.watch(client, words.greetingURI);
      await text("touch", { uri: "test://a" });
      await text("touch", { uri: words.greetingURI });
      await waitForLength(received.events, 1);
      await text("extend");
      await waitForLength(received.events, 2);
    }
    report.events = received.events;
    await dialect.endSession();
    await client.close();
  } catch (error) {
    report.failure = String(error?.stack ?? error);
  }
  process.stdout.write(JSON.stringify(report));
  process.exit(0);
}

async function list(client, report) {
  report.tools = await all((params) => client.listTools(params), "tools", "name");
  report.resources = await all((params) => client.listResources(params), "resources", "uri");
  report.templates = await all((params) => client.listResourceTemplates(params), "resourceTemplates", "uriTemplate");
  report.prompts = await all((params) => client.listPrompts(params), "prompts", "name");
}

async function read(client, report) {
  report.read = {};
  for (const uri of [words.greetingURI, words.itemURI, words.logoURI]) {
    report.read[uri] = contents(await client.readResource({ uri }));
  }
  report.prompt = lines(await client.getPrompt({ name: "greet", arguments: { name: "Ada", style: "formal" } }));
  report.codes = {
    "missing resource": await code(client.readResource({ uri: words.missingItem })),
    "missing argument": await code(client.getPrompt({ name: "greet" })),
    "unknown prompt": await code(client.getPrompt({ name: "no_such_prompt" })),
  };
  const greet = { type: "ref/prompt", name: "greet" };
  const complete = async (ref, name, value, known) => {
    const params = { ref, argument: { name, value }, ...(known && { context: { arguments: known } }) };
    return (await client.complete(params)).completion.values;
  };
  report.completion = {
    style: await complete(greet, "style", "f"),
    id: await complete({ type: "ref/resource", uri: words.itemTemplate }, "id", "1"),
    name: await complete(greet, "name", ""),
  };
  if (able.context) {
    report.completion["name, formal"] = await complete(greet, "name", "", { style: "formal" });
  }
}

/** Makes a call of the tool slow that ends, and one that is canceled. */
async function callSlow(call, text) {
  const slow = async (args, options) => (await call({ name: "slow", arguments: args }, options)).content[0].text;
  const done = await slow({ steps: 3, delay_ms: 1 }, { onprogress: () => {} });
  const abort = new AbortController();
  const seen = [];
  const onprogress = ({ progress }) => seen.push(`progress ${progress}`) === 2 && abort.abort("enough");
  const end = await slow({ steps: 1000, delay_ms: 20 }, { onprogress, signal: abort.signal }).catch((error) => (abort.signal.aborted ? "given up" : String(error)));
  return [done, ...seen.slice(0, 2), end, await text("cancelled", able.cancel ? {} : { for_ms: 100 })];
}

async function respond(client, report, text) {
  report.answers = {};
  if (able.elicit) {
    report.answers.ask = await text("ask");
    report.answers["asked prompt"] = lines(await client.getPrompt({ name: "asked" })).join(", ");
    report.answers["asked resource"] = contents(await client.readResource({ uri: words.askedURI }));
  }
  for (const tool of ["visit", "sample", "roots"]) {
    if (able[tool]) {
      report.answers[tool] = await text(tool);
    }
  }
}
