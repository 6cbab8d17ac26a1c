// A server on @modelcontextprotocol/server, which supports both eras.
import { completable, inputRequired, McpServer, ProtocolError, ProtocolErrorCode, ResourceNotFoundError, ResourceTemplate } from "@modelcontextprotocol/server";
import { z } from "zod";
import { page, register, resources, words } from "./surface.mjs";

const requests = { elicit: "elicit", visit: "elicitUrl", sample: "createMessage", roots: "listRoots" };

/** Returns an input request, which the SDK sends to clients of both eras, or its response. */
async function ask(ctx, kind, params) {
  const answer = ctx.mcpReq.inputResponses?.question;
  if (answer === undefined) {
    return { required: inputRequired({ inputRequests: { question: inputRequired[requests[kind]](params) }, requestState: words.state }) };
  }
  if (ctx.mcpReq.requestState() !== words.state) {
    throw new Error(`requestState = ${JSON.stringify(ctx.mcpReq.requestState())}`);
  }
  return { answer };
}

async function progress({ mcpReq }, params) {
  const progressToken = mcpReq._meta?.progressToken;
  if (progressToken !== undefined) {
    await mcpReq.notify({ method: "notifications/progress", params: { progressToken, ...params } });
  }
}

/**
 * Returns a server for one session or one request. notifier announces changes to subscriptions;
 * without it, the server does.
 */
export function newServer({ era }, notifier) {
  const subscribed = new Set();
  const capabilities = { logging: {}, tools: { listChanged: true }, resources: { subscribe: true, listChanged: true }, prompts: { listChanged: true } };
  const server = new McpServer({ name: "typescript-2", version: "1.0.0" }, { capabilities, instructions: words.instructions });
  register(
    server,
    {
      completable,
      optional: (values) => completable(z.string(), values).optional(),
      template: (uri, callbacks) => new ResourceTemplate(uri, callbacks),
      notFound: (uri) => new ResourceNotFoundError(uri),
      signal: (ctx) => ctx.mcpReq.signal,
      log: (ctx, level, data, logger) => ctx.mcpReq.log(level, data, logger),
      progress,
      ask,
      ...(notifier && { extended: () => notifier.toolsChanged() }),
    },
    async (uri) => {
      // In the modern era, the SDK has the subscriptions.
      if (notifier) {
        notifier.resourceUpdated(uri);
      } else if (era === "modern" || subscribed.has(uri)) {
        await server.server.sendResourceUpdated({ uri });
      }
    },
  );
  server.server.setRequestHandler("resources/list", async ({ params }) => {
    const list = page(resources, params?.cursor);
    if (list === undefined) {
      throw new ProtocolError(ProtocolErrorCode.InvalidParams, "invalid cursor");
    }
    return list;
  });
  if (era === "legacy") {
    server.server.setRequestHandler("resources/subscribe", async ({ params }) => (subscribed.add(params.uri), {}));
    server.server.setRequestHandler("resources/unsubscribe", async ({ params }) => (subscribed.delete(params.uri), {}));
  }
  return server;
}
