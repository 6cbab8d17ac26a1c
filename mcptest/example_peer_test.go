package mcptest_test

import (
	"testing"

	"mcpwire/mcp"
	"mcpwire/mcptest"
)

// testProgress writes and reads the messages of a client. In a test file, it would be
// TestProgress(t *testing.T).
func testProgress(t testing.TB) {
	mcptest.CheckLeaks(t)
	p := mcptest.NewPeer(t, mcptest.Serve(t, newWords(t)))

	p.Send(mcptest.Initialize(mcp.Revision20250618))
	p.Expect(mcptest.Result(0, `{"protocolVersion":"2025-06-18","serverInfo":{"name":"words","version":"$version"},"capabilities":"$any"}`))
	p.Send(mcptest.Initialized)

	p.Send(`{"jsonrpc":"2.0", "id":1, "method":"tools/call", "params":{
		"name":"longest", "arguments":{"text":"a bc"}, "_meta":{"progressToken":"p"}}}`)
	p.Expect(mcptest.Notification("notifications/progress", `{"progressToken":"p","progress":1}`))
	p.Expect(mcptest.Notification("notifications/progress", `{"progressToken":"p","progress":2}`))
	p.Expect(mcptest.Result(1, `{"content":[{"type":"text","text":"bc"}]}`))

	// Request adds the metadata of modern requests. The responses have the version of the server,
	// which must be the one from above.
	p.Send(mcptest.Request(mcp.Revision20260728, "two", "tools/call", `{"name":"longest","arguments":{"text":"abc d"}}`))
	p.Expect(mcptest.Result("two", `{
		"content":[{"type":"text","text":"abc"}],
		"resultType":"complete",
		"_meta":{"io.modelcontextprotocol/serverInfo":{"name":"words","version":"$version"}}}`))
}

// A server under test, and a client whose messages the test writes.
func ExamplePeer() {
	run(testProgress)
	// Output: PASS
}
