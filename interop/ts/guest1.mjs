// A guest on @modelcontextprotocol/sdk, which speaks the legacy era.
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
import { leave, tellRevision, way } from "./way1.mjs";

const client = new Client({ name: "interop", version: "1" }, { capabilities });
client.setRequestHandler(ElicitRequestSchema, async ({ params }) => handlers.elicit(params));
client.setRequestHandler(CreateMessageRequestSchema, async ({ params }) => handlers.sample(params));
client.setRequestHandler(ListRootsRequestSchema, async () => handlers.roots());
client.setNotificationHandler(LoggingMessageNotificationSchema, ({ params }) => handlers.log(params));
client.setNotificationHandler(ResourceUpdatedNotificationSchema, ({ params }) => handlers.updated(params));
client.setNotificationHandler(ToolListChangedNotificationSchema, () => handlers.changed());

let revision = "";
const transport = way(job);
tellRevision(transport, (version) => (revision = version));
await client.connect(transport);

/** Starts a task and follows it, until it is cancelled at once or done. */
async function follow(name, args, cancel) {
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
  throw new Error("the task came to no end");
}

await visit(client, {
  revision: () => revision,
  call: (params, options) => client.callTool(params, undefined, options),
  leave: () => leave(transport),
  logFrom: async (_, level) => void (await client.setLoggingLevel(level)),
  watch: (_, uri) => client.subscribeResource({ uri }),
  runTasks: async () => ({
    work: await follow("work", { text: "a task", for_ms: 50 }),
    cancel: await follow("work", { text: "a task", for_ms: 60_000 }, true),
    interview: await follow("interview", {}),
  }),
});
