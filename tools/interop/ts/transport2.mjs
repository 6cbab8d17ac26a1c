// The transport of @modelcontextprotocol/client to the job's server.
import { SSEClientTransport, StreamableHTTPClientTransport } from "@modelcontextprotocol/client";
import { StdioClientTransport } from "@modelcontextprotocol/client/stdio";

export function newTransport({ command, args, url, old }) {
  if (url) {
    return old ? new SSEClientTransport(new URL(url)) : new StreamableHTTPClientTransport(new URL(url));
  }
  return new StdioClientTransport({ command, args, env: process.env, stderr: "inherit" });
}

/** Ends the transport's session, if there is one. */
export const endSession = (transport) => transport.terminateSession?.();
