// Command server offers what the server scenarios of the MCP conformance suite (npm @modelcontextprotocol/conformance) ask for, made with
// package server as anybody would make it:
//
//	server -http localhost:3000
//
// serves all revisions at http://localhost:3000/mcp from one process, and writes that address to standard output once it listens. With port 0 the
// system picks one. Without -http it serves on standard input and output.
//
// What each tool, prompt and resource does is the suite's choice; their descriptions say it. The script conformance/run starts this program.
package main
