// A host on @modelcontextprotocol/sdk, which supports the legacy era.
import { Client } from "@modelcontextprotocol/sdk/client/index.js";
import { CallToolResultSchema } from "@modelcontextprotocol/sdk/types.js";
import { identity, job, walk } from "./walk.mjs";
import { endSession, newTransport, watchRevision } from "./transport1.mjs";

const transport = newTransport(job);
let revision = "";
const callTool = (client, params, options) => client.callTool(params, CallToolResultSchema, options);

await walk(
  async () => {
    watchRevision(transport, (version) => (revision = version));
    const client = new Client(identity);
    await client.connect(transport);
    return client;
  },
  () => revision,
  callTool,
  () => endSession(transport),
);
