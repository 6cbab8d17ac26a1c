// What the servers over HTTP have in common: they listen on a free port of the
// loopback, say so on standard error, and end when standard input does.
import { createServer } from "node:http";

/** Serves requests. */
export function listen(listener) {
  const server = createServer(async (request, response) => {
    try {
      await listener(request, response);
    } catch (error) {
      console.error(error);
      response.destroy();
    }
  });
  server.listen(0, "127.0.0.1", () => console.error(`listening url=http://127.0.0.1:${server.address().port}`));
  process.stdin.on("end", () => process.exit(0)).resume();
}

/** Ends a response that belongs to no session. */
export function refuse(response, status, message) {
  const error = { code: -32000, message };
  response.writeHead(status, { "content-type": "application/json" }).end(JSON.stringify({ jsonrpc: "2.0", error, id: null }));
}
