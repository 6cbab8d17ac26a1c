// Command client runs the client scenarios of the MCP conformance suite
// (npm @modelcontextprotocol/conformance) with package client, and with package
// oauth if a scenario requires a login. The suite starts it for each scenario:
//
//	MCP_CONFORMANCE_SCENARIO=tools_call client http://localhost:3000/mcp
//
// Arguments before the address are a command. The client starts it with the
// address as its last argument, and talks to it instead of to the address:
//
//	MCP_CONFORMANCE_SCENARIO=tools_call client mcpwire bridge http://localhost:3000/mcp
//
// MCP_CONFORMANCE_CONTEXT may contain more inputs of the scenario, as a JSON
// object. The client negotiates the revision. The exit status is 1 if the scenario
// failed.
package main
