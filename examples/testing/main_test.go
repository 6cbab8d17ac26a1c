package main

import (
	"errors"
	"fmt"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"

	"mcpwire/client"
	"mcpwire/mcp"
	"mcpwire/mcptest"
	"mcpwire/server"
)

func start(t testing.TB) *server.Server {
	srv, err := newServer()
	if err != nil {
		t.Fatal(err)
	}
	return srv
}

// TestAdd is the usual test: a client in the same process, and Go values instead of messages. It
// runs for both eras of the protocol.
func TestAdd(t *testing.T) {
	mcptest.CheckLeaks(t) // fails the test if goroutines are left at its end
	for _, revision := range []mcp.Revision{mcp.Revision20251125, mcp.Revision20260728} {
		t.Run(revision.String(), func(t *testing.T) {
			c := mcptest.Connect(t, start(t), &client.Options{Revisions: []mcp.Revision{revision}})
			if _, err := client.CallTool[items](t.Context(), c, "add", item{"sleep"}); err != nil {
				t.Fatal(err)
			}
			got, err := client.CallTool[items](t.Context(), c, "add", item{"eat"})
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(items{[]string{"sleep", "eat"}}, got); diff != "" {
				t.Errorf("items (-want +got):\n%s", diff)
			}
		})
	}
}

// TestErrors checks what the model reads when it makes a mistake.
func TestErrors(t *testing.T) {
	c := mcptest.Connect(t, start(t), nil)
	if _, err := client.CallTool[items](t.Context(), c, "add", item{"sleep"}); err != nil {
		t.Fatal(err)
	}
	for text, want := range map[string]string{
		"sleep": `tool "add" failed: "sleep" is on the list already`,
		"":      `tool "add" failed: arguments.text: expected at least 1 character, got 0`,
	} {
		_, err := client.CallTool[items](t.Context(), c, "add", item{text})
		failed, ok := errors.AsType[*client.ToolError](err)
		if !ok || failed.Error() != want {
			t.Errorf("add %q: got %v, want %s", text, err, want)
		}
	}
}

// TestConcurrent is for the race detector: go test -race.
func TestConcurrent(t *testing.T) {
	c := mcptest.Connect(t, start(t), nil)
	var wg sync.WaitGroup
	for i := range maxItems {
		wg.Go(func() {
			if _, err := client.CallTool[items](t.Context(), c, "add", item{fmt.Sprint(i)}); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	if got, err := client.CallTool[items](t.Context(), c, "add", item{"one more"}); err == nil {
		t.Errorf("the list has %d items, want at most %d", len(got.Items), maxItems)
	}
}

// TestMessages checks the messages themselves. In a pattern, "$any" stands for any value.
func TestMessages(t *testing.T) {
	p := mcptest.NewPeer(t, mcptest.Serve(t, start(t)))
	p.Send(mcptest.Request(mcp.Revision20260728, 1, "tools/call", `{"name":"add","arguments":{"text":"sleep"}}`))
	p.Expect(mcptest.Result(1, `{
		"content": [{"type":"text", "text":"{\"items\":[\"sleep\"]}"}],
		"structuredContent": {"items":["sleep"]},
		"$any": "$any"}`))
}

// TestGolden replays the sessions in testdata. After a change that is meant to change the messages,
// MCPTEST_UPDATE=1 go test writes the file anew.
func TestGolden(t *testing.T) {
	mcptest.Golden(t, "testdata/*.txtar", start, nil)
}
