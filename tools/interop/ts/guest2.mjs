// A guest on @modelcontextprotocol/client, which supports both eras. The job's mode is its version
// negotiation: "legacy", "auto" or {"pin": revision}. @modelcontextprotocol/ext-tasks implements
// tasks.
import { Client } from "@modelcontextprotocol/client";
import { createTaskSessionFromClient, resultFromTaskOutcome } from "@modelcontextprotocol/ext-tasks/client";
import { capabilities, handlers, job, visit } from "./visit.mjs";
import { endSession, newTransport } from "./transport2.mjs";

const clientInfo = { name: "interop", version: "1" };
const client = new Client(clientInfo, { capabilities, versionNegotiation: { mode: job.mode } });
client.setRequestHandler("elicitation/create", async ({ params }) => handlers.elicit(params));
client.setRequestHandler("sampling/createMessage", async ({ params }) => handlers.sample(params));
client.setRequestHandler("roots/list", async () => handlers.roots());
client.setNotificationHandler("notifications/message", ({ params }) => handlers.log(params));
client.setNotificationHandler("notifications/resources/updated", ({ params }) => handlers.updated(params));
client.setNotificationHandler("notifications/tools/list_changed", () => handlers.changed());

const transport = newTransport(job);
await client.connect(transport);
const modern = client.getProtocolEra() === "modern";

/**
 * Returns a function that sends requests of the tasks extension to the transport, because the
 * client does not support them. Their ids distinguish their responses from those of the client.
 */
function dispatcher() {
  const waiting = new Map();
  const { onmessage } = transport;
  transport.onmessage = (message, extra) => {
    const resolve = waiting.get(message.id);
    if (resolve === undefined || message.method !== undefined) {
      return onmessage?.(message, extra);
    }
    waiting.delete(message.id);
    resolve(message.error === undefined ? { kind: "result", result: message.result } : { kind: "error", error: message.error });
  };
  let next = 0;
  return async (request) => {
    const id = `task ${++next}`;
    const answer = new Promise((resolve) => waiting.set(id, resolve));
    await transport.send({ jsonrpc: "2.0", id, ...request });
    return answer;
  };
}

async function runTasks() {
  const framing = { protocolVersion: client.getNegotiatedProtocolVersion(), clientInfo, clientCapabilities: capabilities };
  const session = createTaskSessionFromClient(client, {
    endpointId: "everything",
    // Modern input requests come with the task. The client's handler gets the legacy ones.
    onInputRequest: async ({ params }) => handlers.elicit(params),
    ...(modern && { rawDispatch: dispatcher(), v2RequestFraming: framing }),
  });
  const start = (name, args) => session.callTool(name, args, { task: { preference: "require" } });
  const text = async (name, args) => {
    const { outcome } = await (await start(name, args)).settle();
    return resultFromTaskOutcome(outcome).content[0].text;
  };
  const work = await text("work", { text: "a task", for_ms: 50 });
  const execution = await start("work", { text: "a task", for_ms: 60_000 });
  await execution.cancel();
  const { outcome } = await execution.settle();
  const interview = await text("interview", {});
  await session.close();
  return { work, cancel: outcome.status, interview };
}

await visit(client, {
  revision: () => client.getNegotiatedProtocolVersion(),
  call: (params, options) => client.callTool(params, options),
  endSession: () => endSession(transport),
  logFrom: async (_, level) => {
    if (modern) {
      return { "io.modelcontextprotocol/logLevel": level };
    }
    await client.setLoggingLevel(level);
  },
  watch: (_, uri) => (modern ? client.listen({ resourceSubscriptions: [uri], toolsListChanged: true }) : client.subscribeResource({ uri })),
  runTasks,
});
