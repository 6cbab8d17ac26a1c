// The transport of @modelcontextprotocol/sdk to the job's server.
import { SSEClientTransport } from "@modelcontextprotocol/sdk/client/sse.js";
import { StdioClientTransport } from "@modelcontextprotocol/sdk/client/stdio.js";
import { StreamableHTTPClientTransport } from "@modelcontextprotocol/sdk/client/streamableHttp.js";

export function newTransport({ command, args, url, old }) {
  if (url) {
    return old ? new SSEClientTransport(new URL(url)) : new StreamableHTTPClientTransport(new URL(url));
  }
  return new StdioClientTransport({ command, args, env: process.env, stderr: "inherit" });
}

/** Calls report with the negotiated revision, which only the transport gets. */
export function watchRevision(transport, report) {
  const original = transport.setProtocolVersion?.bind(transport);
  transport.setProtocolVersion = (version) => {
    report(version);
    original?.(version);
  };
}

/** Ends the transport's session, if there is one. */
export const endSession = (transport) => transport.terminateSession?.();
