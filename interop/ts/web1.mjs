// The server of peer1.mjs over HTTP: Streamable HTTP at /mcp, with sessions and,
// if the words' json is set, answers that are one message; and HTTP+SSE at /sse.
import { randomUUID } from "node:crypto";
import { SSEServerTransport } from "@modelcontextprotocol/sdk/server/sse.js";
import { StreamableHTTPServerTransport } from "@modelcontextprotocol/sdk/server/streamableHttp.js";
import { listen, refuse } from "./listen.mjs";
import { newServer } from "./peer1.mjs";
import { words } from "./surface.mjs";

const sessions = new Map();
const streams = new Map();

async function streamable(request, response) {
  const id = request.headers["mcp-session-id"];
  if (id !== undefined) {
    const transport = sessions.get(id);
    return transport === undefined ? refuse(response, 404, "no such session") : transport.handleRequest(request, response);
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
      return transport === undefined ? refuse(response, 404, "no such session") : transport.handlePostMessage(request, response);
  }
  return pathname === "/mcp" ? streamable(request, response) : refuse(response, 404, "there is nothing here");
});
