// The way of a guest through the everything server, for clients of both
// TypeScript SDKs. The job, in the first argument, says which server to start
// and what the guest can do; the report goes to standard output as one JSON
// text. See guest_test.go for the meaning of both.

/** The job that the Go test wrote. */
export const job = JSON.parse(process.argv[2]);

const { able, words } = job;

/** The notifications that the client's handlers get. */
export const told = { questions: [], log: [], events: [] };

/** What the client's handlers answer. */
export const handlers = {
  elicit: ({ mode, url, message, requestedSchema }) => {
    if (mode === "url") {
      told.questions.push(`visit ${url}: ${message}`);
      return { action: "accept" };
    }
    const { name, age } = requestedSchema.properties;
    told.questions.push(`form name:${name.type} age:${age.type}: ${message}`);
    return { action: "accept", content: { name: "Ada", age: 36 } };
  },
  sample: ({ messages: [{ role, content }], maxTokens }) => {
    told.questions.push(`sample ${role} up to ${maxTokens}: ${content.text}`);
    return { role: "assistant", model: "test-model", stopReason: "endTurn", content: { type: "text", text: "hello" } };
  },
  roots: () => ({ roots: [{ uri: "file:///projects/a", name: "Project A" }, { uri: "file:///projects/b" }] }),
  log: ({ level, logger, data }) => told.log.push(`${level} ${logger} ${data}`),
  updated: ({ uri }) => told.events.push(`updated ${uri}`),
  changed: () => told.events.push("tools changed"),
};

/** The capabilities that the client declares in addition to the SDK's own. */
export const capabilities = { elicitation: { form: {}, url: {} }, sampling: {}, roots: {} };

/** Resolves when the list has so many elements, fails after a while. */
async function until(list, length) {
  const end = Date.now() + 20_000;
  while (list.length < length) {
    if (Date.now() > end) {
      throw new Error(`waiting for ${length} of ${JSON.stringify(list)}`);
    }
    await new Promise((resolve) => setTimeout(resolve, 1));
  }
}

const lines = ({ messages }) => messages.map(({ role, content }) => `${role}: ${content.text}`);
const contents = ({ contents: [{ mimeType = "", text, blob }] }) => `${mimeType} ${text ?? blob}`;

/** The code that a call fails with. */
async function code(call) {
  try {
    await call;
    return 0;
  } catch (error) {
    return error.code ?? 0;
  }
}

/** All pages of a list, for clients that don't walk them by themselves. */
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
 * Leads a connected client through the server, closes it and prints the
 * report. The dialect has the differences between the SDKs: revision(client),
 * call(params, options) of a tool, leave(), logFrom(client, level), which
 * returns the _meta of calls, watch(client, uri), and runTasks(client), if
 * supported.
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
    await look(client, report);
    await read(client, report);
    report.slow = await takeTime(dialect.call, text);
    await answer(client, report, text);
    if (able.log) {
      const meta = await dialect.logFrom(client, "info");
      await text("log", {}, meta);
      await until(told.log, 2);
    }
    report.log = told.log;
    report.tasks = able.tasks ? await dialect.runTasks(client) : {};
    report.questions = told.questions;
    if (able.subscribe) {
      await dialect.watch(client, words.greetingURI);
      await text("touch", { uri: "test://a" });
      await text("touch", { uri: words.greetingURI });
      await until(told.events, 1);
      await text("extend");
      await until(told.events, 2);
    }
    report.events = told.events;
    await dialect.leave();
    await client.close();
  } catch (error) {
    report.failure = String(error?.stack ?? error);
  }
  process.stdout.write(JSON.stringify(report));
  process.exit(0);
}

async function look(client, report) {
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

/** Makes a call that ends, and one that is given up. */
async function takeTime(call, text) {
  const slow = async (args, options) => (await call({ name: "slow", arguments: args }, options)).content[0].text;
  const done = await slow({ steps: 3, delay_ms: 1 }, { onprogress: () => {} });
  const abort = new AbortController();
  const seen = [];
  const onprogress = ({ progress }) => seen.push(`progress ${progress}`) === 2 && abort.abort("enough");
  const end = await slow({ steps: 1000, delay_ms: 20 }, { onprogress, signal: abort.signal }).catch((error) => (abort.signal.aborted ? "given up" : String(error)));
  return [done, ...seen.slice(0, 2), end, await text("cancelled", able.cancel ? {} : { for_ms: 100 })];
}

async function answer(client, report, text) {
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
