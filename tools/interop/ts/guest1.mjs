// A guest on @modelcontextprotocol/sdk, which supports the legacy era.
import { Client } from "@modelcontextprotocol/sdk/client/index.js";
import {
  CallToolResultSchema,
  CreateMessageRequestSchema,
  ElicitRequestSchema,
  ListRootsRequestSchema,
  LoggingMessageNotificationSchema,
  ResourceUpdatedNotificationSchema,
  ToolListChangedNotificationSchema,
} from "@modelcontextprotocol/sdk/types.js";
import { capabilities, handlers, job, visit } from "./visit.mjs";
import { endSession, newTransport, watchRevision } from "./transport1.mjs";

const client = new Client({ name: "interop", version: "1" }, { capabilities });
client.setRequestHandler(ElicitRequestSchema, async ({ params }) => handlers.elicit(params));
client.setRequestHandler(CreateMessageRequestSchema, async ({ params }) => handlers.sample(params));
client.setRequestHandler(ListRootsRequestSchema, async () => handlers.roots());
client.setNotificationHandler(LoggingMessageNotificationSchema, ({ params }) => handlers.log(params));
client.setNotificationHandler(ResourceUpdatedNotificationSchema, ({ params }) => handlers.updated(params));
client.setNotificationHandler(ToolListChangedNotificationSchema, () => handlers.changed());

let revision = "";
const transport = newTransport(job);
watchRevision(transport, (version) => (revision = version));
await client.connect(transport);

/** Starts a task and returns its result. If cancel is set, cancels it and returns its status. */
async function runTask(name, args, cancel) {
  for await (const message of client.experimental.tasks.callToolStream({ name, arguments: args }, CallToolResultSchema, { task: { ttl: 60_000 } })) {
    if (message.type === "taskCreated" && cancel) {
      return (await client.experimental.tasks.cancelTask(message.task.taskId)).status;
    }
    if (message.type === "result") {
      return message.result.content[0].text;
    }
    if (message.type === "error") {
      throw message.error;
    }
  }
  throw new Error("the task has no result");
}

await visit(client, {
  revision: () => revision,
  call: (params, options) => client.callTool(params, undefined, options),
  endSession: () => endSession(transport),
  logFrom: async (_, level) => void (await client.setLoggingLevel(level)),
  watch: (_, uri) => client.subscribeResource({ uri }),
  runTasks: async () => ({
    work: await runTask("work", { text: "a task", for_ms: 50 }),
    cancel: await runTask("work", { text: "a task", for_ms: 60_000 }, true),
    interview: await runTask("interview", {}),
  }),
});
