// A host on @modelcontextprotocol/client, which speaks both eras. The job's
// mode is its version negotiation: "legacy", "auto" or {"pin": revision}.
import { Client } from "@modelcontextprotocol/client";
import { StdioClientTransport } from "@modelcontextprotocol/client/stdio";
import { identity, job, walk } from "./walk.mjs";

await walk(
  async () => {
    const client = new Client(identity, { versionNegotiation: { mode: job.mode } });
    await client.connect(new StdioClientTransport({ command: job.command, args: job.args, stderr: "inherit" }));
    return client;
  },
  (client) => client.getNegotiatedProtocolVersion(),
  (client, params, options) => client.callTool(params, options),
);
