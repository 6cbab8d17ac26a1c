// A host on @modelcontextprotocol/client, which supports both eras. The job's mode is its version
// negotiation: "legacy", "auto" or {"pin": revision}.
import { Client } from "@modelcontextprotocol/client";
import { identity, job, walk } from "./walk.mjs";
import { endSession, newTransport } from "./transport2.mjs";

const transport = newTransport(job);

await walk(
  async () => {
    const client = new Client(identity, { versionNegotiation: { mode: job.mode } });
    await client.connect(transport);
    return client;
  },
  (client) => client.getNegotiatedProtocolVersion(),
  (client, params, options) => client.callTool(params, options),
  () => endSession(transport),
);
