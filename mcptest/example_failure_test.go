package mcptest_test

import (
	"testing"

	"mcpwire/mcp"
	"mcpwire/mcptest"
)

// testWrong expects another message than the one that it gets.
func testWrong(t testing.TB) {
	p := mcptest.NewPeer(t, mcptest.Serve(t, newWords(t)))
	p.Send(mcptest.Request(mcp.LatestRevision, 1, "tools/call", `{"name":"longest","arguments":{"text":"a bc"}}`))
	p.Expect(mcptest.Result(1, `{"content":[{"type":"text","text":"abc"}],"isError":false,"$any":"$any"}`))
}

// The message of a failed expectation.
func ExamplePeer_failure() {
	run(testWrong)
	// Output:
	// Expect: got another message
	//     result.content[0].text: got "bc", want "abc"
	//     result.isError: missing, want false
	// want: {"jsonrpc":"2.0","id":1,"result":{"content":[{"type":"text","text":"abc"}],"isError":false,"$any":"$any"}}
	// got:  {"jsonrpc":"2.0","id":1,"result":{"content":[{"type":"text","text":"bc"}],"resultType":"complete","_meta":{"io.modelcontextprotocol/serverInfo":{"name":"words","version":"1.0.0"}}}}
	// the session so far:
	//   > {"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientCapabilities":{}},"name":"longest","arguments":{"text":"a bc"}}}
	//   < {"jsonrpc":"2.0","id":1,"result":{"content":[{"type":"text","text":"bc"}],"resultType":"complete","_meta":{"io.modelcontextprotocol/serverInfo":{"name":"words","version":"1.0.0"}}}}
	// FAIL
}
