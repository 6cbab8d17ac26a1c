// Command server implements what the server scenarios of the MCP conformance suite
// (npm @modelcontextprotocol/conformance) use, with the public API of package
// server:
//
//	server -http localhost:3000
//
// serves all revisions at http://localhost:3000/mcp from one process, and writes
// that address to standard output once it listens. With port 0 the system picks a
// port. Without -http it serves on standard input and output.
//
// The suite defines what each tool, prompt and resource does; their descriptions
// say it. The script conformance/run starts this program.
package main
