// A host on @modelcontextprotocol/sdk, which speaks the legacy era.
import { Client } from "@modelcontextprotocol/sdk/client/index.js";
import { StdioClientTransport } from "@modelcontextprotocol/sdk/client/stdio.js";
import { CallToolResultSchema } from "@modelcontextprotocol/sdk/types.js";
import { identity, job, walk } from "./walk.mjs";

// The client keeps the revision to itself, but tells it to its transport.
let revision = "";
const callTool = (client, params, options) => client.callTool(params, CallToolResultSchema, options);

await walk(
  async () => {
    const transport = new StdioClientTransport({ command: job.command, args: job.args, stderr: "inherit" });
    transport.setProtocolVersion = (version) => (revision = version);
    const client = new Client(identity);
    await client.connect(transport);
    return client;
  },
  () => revision,
  callTool,
);
