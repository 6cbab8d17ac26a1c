package replay_test

import (
	"bytes"
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"mcpwire/client"
	"mcpwire/mcp"
	"mcpwire/server"
)

// patient is the greeting of a server that has the tools of addWaiting, too.
const patient = "patient"

// addWaiting adds a tool that waits to be cancelled, and one that waits until it was.
func addWaiting(srv *server.Server, check func(error)) {
	gone := make(chan struct{}, 100)
	check(server.AddTool(srv, "wait", "Waits.", func(ctx context.Context, _ struct{}) (string, error) {
		if err := server.CallOf(ctx).Progress(1, 2, ""); err != nil {
			return "", err
		}
		<-ctx.Done()
		gone <- struct{}{}
		return "", ctx.Err()
	}))
	check(server.AddTool(srv, "given_up", "Waits for the end of a call.", func(ctx context.Context, _ struct{}) (string, error) {
		select {
		case <-gone:
			return "it was given up", nil
		case <-ctx.Done():
			return "", ctx.Err()
		}
	}))
}

const callWaiting = `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"wait","_meta":{"progressToken":"p","io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientCapabilities":{}}}}`

// TestGivenUp has clients that cancel a request, over one transport, played over the others: the server sees it in the way that it is told there, before what the client did next.
func TestGivenUp(t *testing.T) {
	web := func(rev mcp.Revision) []byte {
		return recordClient(t, rev, patient, func(c *client.Client) {
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			_, err := c.CallTool(ctx, "wait", nil, client.WithProgress(func(mcp.ProgressNotificationParams) { cancel() }))
			if !errors.Is(err, context.Canceled) {
				t.Fatal(err)
			}
			if _, err := c.CallTool(t.Context(), "given_up", nil); err != nil {
				t.Fatal(err)
			}
		}).Bytes()
	}
	pipe := record(
		c2s(0, callWaiting), s2c(1, `{"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":"p","progress":1,"total":2}}`),
		c2s(2, `{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":1}}`),
		c2s(3, strings.NewReplacer(`"id":1`, `"id":2`, `"wait"`, `"given_up"`, `"progressToken":"p",`, "").Replace(callWaiting)),
		s2c(4, `{"jsonrpc":"2.0","id":2,"result":{"resultType":"complete","content":[{"type":"text","text":"it was given up"}]}}`),
	).Bytes()
	for from, file := range map[string][]byte{"modern HTTP": web(mcp.Revision20260728), "modern stdio": pipe, "legacy HTTP": web(mcp.Revision20250618)} {
		for to, o := range targets(t, patient, from == "legacy HTTP") {
			t.Run(from+" to "+to, func(t *testing.T) {
				file := file
				for range 2 { // what was played is a recording, too
					var got told
					sum, again := play(t, read(t, bytes.NewBuffer(file)), o, patient, &got)
					want := told{"tools/call wait: open", "tools/call given_up: same"}
					for i := range got {
						_, got[i], _ = strings.Cut(got[i], " ")
					}
					if diff := cmp.Diff(want, got[len(got)-2:]); diff != "" || !sum.OK() {
						t.Errorf("summary %+v (-want +got):\n%s", *sum, diff)
					}
					file = again
				}
			})
		}
	}
}
