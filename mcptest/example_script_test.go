package mcptest_test

import (
	"context"
	"testing"

	"mcpwire/client"
	"mcpwire/mcp"
	"mcpwire/mcptest"
)

// sum is the code under test: it uses a client.
func sum(ctx context.Context, c *client.Client, numbers ...int) (total int, err error) {
	for _, n := range numbers {
		total, err = client.CallTool[int](ctx, c, "add", map[string]any{"a": total, "b": n})
		if err != nil {
			return 0, err
		}
	}
	return total, nil
}

// scriptAdder is the script of a server. $probe and $call are the ids of the client's requests.
func scriptAdder(p *mcptest.Peer) {
	p.Expect(mcptest.Request(mcp.RevisionNone, "$probe", "server/discover", `"$any"`))
	p.Send(mcptest.Result("$probe", `{"resultType":"complete", "supportedVersions":["2026-07-28"], "capabilities":{"tools":{}}, "ttlMs":0, "cacheScope":"private"}`))

	p.Expect(mcptest.Request(mcp.RevisionNone, "$call", "tools/call", `{"name":"add", "arguments":{"a":0,"b":7}, "_meta":"$any"}`))
	p.Send(mcptest.Result("$call", `{"resultType":"complete", "content":[], "structuredContent":7}`))
}

// testSum tests code that uses a client. In a test file, it would be TestSum(t *testing.T).
func testSum(t testing.TB) {
	c, err := client.Dial(t.Context(), client.FramerTransport(mcptest.Script(t, scriptAdder)), nil)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if total, err := sum(t.Context(), c, 7); total != 7 || err != nil {
		t.Errorf("got %d, %v, want 7", total, err)
	}
}

// A client under test, and a server whose messages the test writes.
func ExampleScript() {
	run(testSum)
	// Output: PASS
}
