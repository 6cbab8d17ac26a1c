// The server of peer2.mjs on standard input and output. If the member legacy of the first argument
// is "reject", it supports only the modern era.
import { serveStdio } from "@modelcontextprotocol/server/stdio";
import { newServer } from "./peer2.mjs";
import { words } from "./surface.mjs";

serveStdio((context) => newServer(context), { legacy: words.legacy ?? "serve" });
