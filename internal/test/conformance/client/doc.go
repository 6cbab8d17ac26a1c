// Command client acts out the client scenarios of the MCP conformance suite (npm @modelcontextprotocol/conformance) with package client, and with
// package oauth where a scenario wants a login. The suite starts it for each scenario:
//
//	MCP_CONFORMANCE_SCENARIO=tools_call client http://localhost:3000/mcp
//
// What is before the address is a command, with which the client then talks instead, and which gets the address:
//
//	MCP_CONFORMANCE_SCENARIO=tools_call client mcpwire bridge http://localhost:3000/mcp
//
// MCP_CONFORMANCE_CONTEXT may have more that the scenario needs, a JSON object. Which revision the server speaks, the client finds out by itself.
// The exit status is 1 if the scenario could not be played to its end.
package main
