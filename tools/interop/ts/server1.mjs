// The server of peer1.mjs on standard input and output.
import { StdioServerTransport } from "@modelcontextprotocol/sdk/server/stdio.js";
import { newServer } from "./peer1.mjs";

await newServer().connect(new StdioServerTransport());
