// The transport of @modelcontextprotocol/client that leads to the job's server.
import { SSEClientTransport, StreamableHTTPClientTransport } from "@modelcontextprotocol/client";
import { StdioClientTransport } from "@modelcontextprotocol/client/stdio";

export function way({ command, args, url, old }) {
  if (url) {
    return old ? new SSEClientTransport(new URL(url)) : new StreamableHTTPClientTransport(new URL(url));
  }
  return new StdioClientTransport({ command, args, env: process.env, stderr: "inherit" });
}

/** Ends the session that the transport has, if it has any. */
export const leave = (transport) => transport.terminateSession?.();
