// A client of an SDK that makes calls until its standard input ends, for the harness of clusters:
// node load.mjs 1|2|modern URL. It writes a line for each call, as JSON: the kind of the call, its
// milliseconds, and its error.
const [kind, url] = process.argv.slice(2);

const identity = { name: "load", version: "1" };
const capabilities = { elicitation: {} };
const answer = async () => ({ action: "accept", content: { name: "peer" } });

async function connect() {
  if (kind === "1") {
    const { Client } = await import("@modelcontextprotocol/sdk/client/index.js");
    const { StreamableHTTPClientTransport } = await import("@modelcontextprotocol/sdk/client/streamableHttp.js");
    const { CallToolResultSchema, ElicitRequestSchema } = await import("@modelcontextprotocol/sdk/types.js");
    const client = new Client(identity, { capabilities });
    client.setRequestHandler(ElicitRequestSchema, answer);
    const transport = new StreamableHTTPClientTransport(new URL(url));
    await client.connect(transport);
    return { client, transport, call: (params, options) => client.callTool(params, CallToolResultSchema, options) };
  }
  const { Client, StreamableHTTPClientTransport } = await import("@modelcontextprotocol/client");
  const mode = kind === "modern" ? { pin: "2026-07-28" } : "legacy";
  const client = new Client(identity, { capabilities, versionNegotiation: { mode } });
  client.setRequestHandler("elicitation/create", answer);
  const transport = new StreamableHTTPClientTransport(new URL(url));
  await client.connect(transport);
  return { client, transport, call: (params, options) => client.callTool(params, options) };
}

let done = false;
process.stdin.resume();
process.stdin.on("end", () => (done = true));

async function measure(what, run) {
  const began = performance.now();
  let error = "";
  try {
    await run();
  } catch (e) {
    error = String(e?.message ?? e) || "an error without text";
  }
  console.log(JSON.stringify({ what, ms: performance.now() - began, error }));
  return error === "";
}

function expect(got, want) {
  if (got !== want) {
    throw new Error(`foreign: got ${got}, want ${want}`);
  }
}

const text = (result) => result.content[0].text;
let calls = 0;
while (!done) {
  let session;
  if (!(await measure("connect", async () => (session = await connect())))) {
    await new Promise((resolve) => setTimeout(resolve, 500));
    continue;
  }
  const { client, transport, call } = session;
  for (let i = 0; i < 20 && !done; i++) {
    const id = `${kind}-${process.pid}-${++calls}`;
    switch (i % 4) {
      case 0:
      case 1:
        await measure("echo", async () => expect(text(await call({ name: "echo", arguments: { text: id } })), id));
        break;
      case 2:
        await measure("progress", async () => {
          const steps = [];
          const args = { id, ms: 60, steps: 3 };
          const result = await call({ name: "work", arguments: args }, { onprogress: (p) => steps.push(p.message) });
          expect(result.structuredContent.id, id);
          expect(steps.join(), `${id} 1,${id} 2,${id} 3`);
        });
        break;
      case 3:
        await measure("input", async () => {
          const got = text(await call({ name: "greet", arguments: { text: id } }));
          expect(got.split(", says")[0], `${id}, peer`);
        });
    }
    await new Promise((resolve) => setTimeout(resolve, 50));
  }
  await measure("close", async () => {
    await transport.terminateSession?.();
    await client.close();
  });
}
