// The common parts of the servers over HTTP. They listen on a free loopback port, write their URL
// to standard error, and exit at the end of standard input.
import { createServer } from "node:http";

/** Serves requests with a listener. */
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

/** Sends an error that belongs to no session. */
export function sendError(response, status, message) {
  const error = { code: -32000, message };
  response.writeHead(status, { "content-type": "application/json" }).end(JSON.stringify({ jsonrpc: "2.0", error, id: null }));
}
