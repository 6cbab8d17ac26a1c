// Command server runs the server of package fixtures for the MCP conformance suite
// (npm @modelcontextprotocol/conformance):
//
//	server -http localhost:3000
//
// serves all revisions at http://localhost:3000/mcp from one process, and writes
// that address to standard output once it listens. With port 0 the system picks a
// port. Without -http it serves on standard input and output.
//
// The script tools/conformance/run starts this program.
package main
