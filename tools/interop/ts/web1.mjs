// The server of peer1.mjs over HTTP: Streamable HTTP at /mcp, with sessions, and HTTP+SSE at /sse.
// If the member json of the first argument is set, responses are JSON.
import { randomUUID } from "node:crypto";
import { SSEServerTransport } from "@modelcontextprotocol/sdk/server/sse.js";
import { StreamableHTTPServerTransport } from "@modelcontextprotocol/sdk/server/streamableHttp.js";
import { listen, sendError } from "./listen.mjs";
import { newServer } from "./peer1.mjs";
import { words } from "./surface.mjs";

const sessions = new Map();
const streams = new Map();

async function streamable(request, response) {
  const id = request.headers["mcp-session-id"];
  if (id !== undefined) {
    const transport = sessions.get(id);
    return transport === undefined ? sendError(response, 404, "unknown session") : transport.handleRequest(request, response);
  }
  const transport = new StreamableHTTPServerTransport({
    sessionIdGenerator: randomUUID,
    enableJsonResponse: words.json ?? false,
    onsessioninitialized: (session) => void sessions.set(session, transport),
    onsessionclosed: (session) => void sessions.delete(session),
  });
  await newServer().connect(transport);
  await transport.handleRequest(request, response);
}

async function open(response) {
  const transport = new SSEServerTransport("/messages", response);
  streams.set(transport.sessionId, transport);
  response.on("close", () => streams.delete(transport.sessionId));
  await newServer().connect(transport);
}

listen(async (request, response) => {
  const { pathname, searchParams } = new URL(request.url, "http://localhost");
  switch (`${request.method} ${pathname}`) {
    case "GET /sse":
      return open(response);
    case "POST /messages":
      const transport = streams.get(searchParams.get("sessionId"));
      return transport === undefined ? sendError(response, 404, "unknown session") : transport.handlePostMessage(request, response);
  }
  return pathname === "/mcp" ? streamable(request, response) : sendError(response, 404, "not found");
});
