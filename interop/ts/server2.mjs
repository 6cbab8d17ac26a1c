// The server of peer2.mjs, on standard input and output; with the words' legacy
// set to "reject", only in the modern era.
import { serveStdio } from "@modelcontextprotocol/server/stdio";
import { newServer } from "./peer2.mjs";
import { words } from "./surface.mjs";

serveStdio((context) => newServer(context), { legacy: words.legacy ?? "serve" });
