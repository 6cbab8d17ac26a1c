// The transport of @modelcontextprotocol/sdk that leads to the job's server.
import { SSEClientTransport } from "@modelcontextprotocol/sdk/client/sse.js";
import { StdioClientTransport } from "@modelcontextprotocol/sdk/client/stdio.js";
import { StreamableHTTPClientTransport } from "@modelcontextprotocol/sdk/client/streamableHttp.js";

export function way({ command, args, url, old }) {
  if (url) {
    return old ? new SSEClientTransport(new URL(url)) : new StreamableHTTPClientTransport(new URL(url));
  }
  return new StdioClientTransport({ command, args, env: process.env, stderr: "inherit" });
}

/** Reads the revision from the transport, because the client does not expose it. */
export function tellRevision(transport, tell) {
  const known = transport.setProtocolVersion?.bind(transport);
  transport.setProtocolVersion = (version) => {
    tell(version);
    known?.(version);
  };
}

/** Ends the session that the transport has, if it has any. */
export const leave = (transport) => transport.terminateSession?.();
