package check

import (
	"fmt"
	"testing"

	"github.com/google/go-cmp/cmp"

	"mcpwire/capture"
	"mcpwire/mcp"
)

// sessionFindings are the ids and messages of what is found in a session.
func sessionFindings(t *testing.T, x Example) (ids, messages []string) {
	t.Helper()
	head, events, err := x.Events()
	if err != nil {
		t.Fatal(err)
	}
	k := New(nil)
	var list []Finding
	for _, e := range events {
		list = append(list, k.Add(head, e)...)
	}
	for _, f := range append(list, k.Close()...) {
		ids, messages = append(ids, f.Rule.ID), append(messages, f.Message)
	}
	return ids, messages
}

// TestSilentInitialize shows that a server that does not answer initialize gets a finding also if
// the client gives up.
func TestSilentInitialize(t *testing.T) {
	const cancel = `> {"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":0}}` + "\n"
	for _, tt := range []struct {
		name, text string
		want       []string
	}{
		{"cancelled after a minute", oddHello + "wait 60s\n" + cancel + "eof >\nexit signal killed", []string{"lifecycle/initialize-cancelled", "lifecycle/unanswered"}},
		{"closed after a minute", oddHello + "wait 60s\neof >\nexit signal killed", []string{"lifecycle/unanswered"}},
		{"closed at once", oddHello + "wait 1s\neof >\nexit 0", nil},
		{"ended by itself", oddHello + "wait 60s\nexit 1", []string{"stdio/exit-pending"}},
		{"answered", oddHello + "wait 60s\n" + oddWelcome + oddReady + "eof >\nexit 0", nil},
	} {
		ids, messages := sessionFindings(t, Example{mcp.Revision20251125, tt.text})
		if diff := cmp.Diff(tt.want, ids); diff != "" {
			t.Errorf("%s (-want +got):\n%s%q", tt.name, diff, messages)
		}
	}
}

// TestExitAfterIgnored shows that requests which a server ignored, and which the client did not wait
// for, were not lost by its exit.
func TestExitAfterIgnored(t *testing.T) {
	const (
		ignored  = `> {"jsonrpc":"2.0","id":1,"method":"ping"}` + "\n"
		answered = `> {"jsonrpc":"2.0","id":2,"method":"ping"}` + "\n" + `< {"jsonrpc":"2.0","id":2,"result":{}}` + "\n"
	)
	for _, tt := range []struct {
		name, text string
		want       []string
	}{
		{"ignored", ignored + answered + "eof >\nexit 1", []string{"stdio/exit-status"}},
		{"not ignored", answered + ignored + "eof >\nexit 1", []string{"stdio/exit-pending"}},
		{"the client waits", ignored + answered + "exit 1", []string{"stdio/exit-pending"}},
	} {
		ids, messages := sessionFindings(t, Example{mcp.Revision20251125, oddHello + oddWelcome + oddReady + tt.text})
		if diff := cmp.Diff(tt.want, ids); diff != "" {
			t.Errorf("%s (-want +got):\n%s%q", tt.name, diff, messages)
		}
	}
}

// TestAnsweredNotification shows that a response to a notification is found in all revisions.
func TestAnsweredNotification(t *testing.T) {
	for _, rev := range []mcp.Revision{mcp.Revision20241105, mcp.Revision20250326, mcp.Revision20251125} {
		ids, messages := sessionFindings(t, Example{rev, oddHello + oddWelcome + oddReady + `< {"jsonrpc":"2.0","result":{}}` + "\n"})
		if diff := cmp.Diff([]string{"jsonrpc/notification-answered"}, ids); diff != "" {
			t.Errorf("%v (-want +got):\n%s%q", rev, diff, messages)
		}
	}
}

// TestRuleIn checks that a finding refers to the specification page of its revision.
func TestRuleIn(t *testing.T) {
	const specification = "https://modelcontextprotocol.io/specification/"
	for _, tt := range []struct {
		url  string
		rev  mcp.Revision
		want string
	}{
		{"2026-07-28/server/tools#output-schema", rev20251125, "2025-11-25/server/tools#output-schema"},
		{"2026-07-28/basic/transports/stdio", rev20251125, "2025-11-25/basic/transports#stdio"},
		{"2026-07-28/basic/transports/streamable-http#custom-headers", rev20250618, "2025-06-18/basic/transports#streamable-http"},
		{"2026-07-28/basic/transports/streamable-http#security-warning", rev20241105, "2024-11-05/basic/transports#http-with-sse"},
		{"2026-07-28/basic/transports/stdio", rev20241105, "2024-11-05/basic/transports#stdio"},
		{"2026-07-28/basic#responses", rev20241105, "2024-11-05/basic/messages#responses"},
		{"2026-07-28/basic/versioning", rev20250326, "2025-03-26/basic/lifecycle#version-negotiation"},
		{"2026-07-28/basic/versioning", rev20260728, "2026-07-28/basic/versioning"},
		{"2026-07-28/basic", mcp.RevisionNone, "2026-07-28/basic"},
	} {
		r := &Rule{URL: specification + tt.url}
		if got := r.in(tt.rev).URL; got != specification+tt.want {
			t.Errorf("%s in %v is at %s, want %s", tt.url, tt.rev, got, tt.want)
		}
		if r.URL != specification+tt.url {
			t.Errorf("%s was changed", tt.url)
		}
	}
	for _, url := range []string{"https://www.jsonrpc.org/specification#batch"} {
		if got := (&Rule{URL: url}).in(rev20251125).URL; got != url {
			t.Errorf("%s became %s", url, got)
		}
	}
}

// TestResponseAfterExchange checks that a response that a bridge records after the end of its
// request's exchange, because the client has gone, is not said to match no request.
func TestResponseAfterExchange(t *testing.T) {
	for _, tt := range []struct {
		name     string
		exchange uint64 // of the request, whose id is 17
		id       int    // of the response
		want     []string
	}{
		{"HTTP", 1, 17, nil},
		{"stdio", 0, 17, nil},
		{"stdio, another id", 0, 18, []string{"jsonrpc/unknown-id"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			ck, n := New(nil), uint64(0)
			var got []string
			add := func(e capture.Event) {
				n++
				e.Capture, e.N, e.Session, e.Side = "c", n, 1, capture.Downstream
				for _, f := range ck.Add(&capture.Head{ID: "c", Transport: "bridge"}, &e) {
					got = append(got, f.Rule.ID)
				}
			}
			if tt.exchange != 0 {
				add(capture.Event{Kind: capture.KindRequest, Dir: capture.ToServer, Exchange: tt.exchange, Request: &capture.Request{
					Method: "POST", URL: "/mcp", Headers: []capture.Header{{Name: "Mcp-Session-Id", Value: "s"}, {Name: "Mcp-Protocol-Version", Value: "2025-11-25"}},
				}})
			}
			add(capture.Event{Kind: capture.KindMessage, Dir: capture.ToServer, Exchange: tt.exchange, Data: []byte(`{"jsonrpc":"2.0","id":17,"method":"tools/list"}`)})
			if tt.exchange != 0 {
				add(capture.Event{Kind: capture.KindEnd, Exchange: tt.exchange, Data: []byte("client closed")})
			}
			got = nil
			add(capture.Event{Kind: capture.KindMessage, Dir: capture.ToClient, Data: fmt.Appendf(nil, `{"jsonrpc":"2.0","id":%d,"error":{"code":-32603,"message":"the session has ended"}}`, tt.id)})
			if diff := cmp.Diff(tt.want, got); diff != "" {
				t.Errorf("findings (-want +got):\n%s", diff)
			}
		})
	}
}
