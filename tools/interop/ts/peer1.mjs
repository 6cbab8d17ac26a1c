// A server on @modelcontextprotocol/sdk, which supports the legacy era.
import { InMemoryTaskStore, InMemoryTaskMessageQueue } from "@modelcontextprotocol/sdk/experimental/tasks/index.js";
import { completable } from "@modelcontextprotocol/sdk/server/completable.js";
import { McpServer, ResourceTemplate } from "@modelcontextprotocol/sdk/server/mcp.js";
import { ElicitResultSchema, ErrorCode, ListResourcesRequestSchema, McpError, SubscribeRequestSchema, UnsubscribeRequestSchema } from "@modelcontextprotocol/sdk/types.js";
import { z } from "zod";
import { asked, form, page, register, resources, words } from "./surface.mjs";

const text = (value) => ({ content: [{ type: "text", text: value }] });

/** Returns a server for one session. */
export function newServer() {
  const subscribed = new Set();
  const capabilities = {
    logging: {},
    tools: { listChanged: true },
    resources: { subscribe: true, listChanged: true },
    prompts: { listChanged: true },
    tasks: { list: {}, cancel: {}, requests: { tools: { call: {} } } },
  };
  const server = new McpServer(
    { name: "typescript-1", version: "1.0.0" },
    { capabilities, instructions: words.instructions, taskStore: new InMemoryTaskStore(), taskMessageQueue: new InMemoryTaskMessageQueue() },
  );

  async function ask(extra, kind, params) {
    switch (kind) {
      case "elicit":
        return { answer: await server.server.elicitInput({ mode: "form", ...params }, { relatedRequestId: extra.requestId }) };
      case "visit":
        return { answer: await server.server.elicitInput({ mode: "url", elicitationId: "e1", ...params }, { relatedRequestId: extra.requestId }) };
      case "sample":
        return { answer: await server.server.createMessage(params, { relatedRequestId: extra.requestId }) };
      default:
        return { answer: await server.server.listRoots({}, { relatedRequestId: extra.requestId }) };
    }
  }

  async function progress({ _meta, sendNotification }, params) {
    if (_meta?.progressToken !== undefined) {
      await sendNotification({ method: "notifications/progress", params: { progressToken: _meta.progressToken, ...params } });
    }
  }

  register(
    server,
    {
      completable,
      optional: (values) => completable(z.string().optional(), values),
      template: (uri, callbacks) => new ResourceTemplate(uri, callbacks),
      notFound: (uri) => new McpError(-32002, `unknown resource: ${uri}`),
      signal: (extra) => extra.signal,
      log: (extra, level, data, logger) => server.sendLoggingMessage({ level, data, logger }, extra.sessionId),
      progress,
      ask,
    },
    async (uri) => {
      if (subscribed.has(uri)) {
        await server.server.sendResourceUpdated({ uri });
      }
    },
  );

  // The SDK does not paginate, and does not record subscriptions.
  server.server.setRequestHandler(ListResourcesRequestSchema, async ({ params }) => {
    const list = page(resources, params?.cursor);
    if (list === undefined) {
      throw new McpError(ErrorCode.InvalidParams, "invalid cursor");
    }
    return list;
  });
  server.server.setRequestHandler(SubscribeRequestSchema, async ({ params }) => (subscribed.add(params.uri), {}));
  server.server.setRequestHandler(UnsubscribeRequestSchema, async ({ params }) => (subscribed.delete(params.uri), {}));

  /** Registers a tool that can run as a task. work returns its result. */
  function registerTask(name, inputSchema, work) {
    const execution = { taskSupport: "optional" };
    server.experimental.tasks.registerToolTask(
      name,
      { inputSchema, execution },
      {
        createTask: async (args, extra) => {
          const { taskStore, taskRequestedTtl } = extra;
          const task = await taskStore.createTask({ ttl: taskRequestedTtl, pollInterval: 20 });
          work(args, extra, task.taskId).then(async (result) => {
            const { status } = await taskStore.getTask(task.taskId);
            if (status !== "cancelled") {
              await taskStore.storeTaskResult(task.taskId, "completed", result);
            }
          });
          return { task };
        },
        getTask: async (_, { taskStore, taskId }) => taskStore.getTask(taskId),
        getTaskResult: async (_, { taskStore, taskId }) => taskStore.getTaskResult(taskId),
      },
    );
  }

  registerTask("work", { text: z.string(), for_ms: z.number().int().optional() }, async ({ text: what, for_ms = 0 }) => {
    await new Promise((resolve) => setTimeout(resolve, for_ms).unref());
    return text(`worked on ${what}`);
  });
  registerTask("interview", {}, async (_, { sendRequest }, taskId) => {
    const request = { method: "elicitation/create", params: { mode: "form", ...form } };
    return text(asked(await sendRequest(request, ElicitResultSchema, { relatedTask: { taskId } })));
  });
  return server;
}
