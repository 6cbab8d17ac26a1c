// The server of peer2.mjs over HTTP, at /mcp. The member legacy of the first argument is the mode
// for legacy clients: "sessions", "stateless" or "reject". The member response is the SDK's mode of
// responses to modern clients.
import { randomUUID } from "node:crypto";
import { createMcpHandler, isLegacyRequest } from "@modelcontextprotocol/server";
import { NodeStreamableHTTPServerTransport, toNodeHandler, toWebRequest } from "@modelcontextprotocol/node";
import { listen, sendError } from "./listen.mjs";
import { newServer } from "./peer2.mjs";
import { words } from "./surface.mjs";

const options = { legacy: words.legacy === "sessions" ? "reject" : words.legacy, responseMode: words.response ?? "auto" };
const handler = createMcpHandler((context) => newServer(context, handler.notify), options);
const serve = toNodeHandler(handler);
const sessions = new Map();

async function legacy(request, response, body) {
  const id = request.headers["mcp-session-id"];
  if (id !== undefined) {
    const transport = sessions.get(id);
    return transport === undefined ? sendError(response, 404, "unknown session") : transport.handleRequest(request, response, body);
  }
  const transport = new NodeStreamableHTTPServerTransport({
    sessionIdGenerator: randomUUID,
    onsessioninitialized: (session) => void sessions.set(session, transport),
    onsessionclosed: (session) => void sessions.delete(session),
  });
  await newServer({ era: "legacy" }).connect(transport);
  await transport.handleRequest(request, response, body);
}

async function bodyOf(request) {
  const chunks = [];
  for await (const chunk of request) {
    chunks.push(chunk);
  }
  return chunks.length === 0 ? undefined : JSON.parse(Buffer.concat(chunks).toString());
}

listen(async (request, response) => {
  if (request.url !== "/mcp") {
    return sendError(response, 404, "not found");
  }
  const body = await bodyOf(request);
  if (words.legacy === "sessions" && (await isLegacyRequest(await toWebRequest(request, body)))) {
    return legacy(request, response, body);
  }
  return serve(request, response, body);
});
