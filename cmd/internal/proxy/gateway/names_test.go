package gateway

import (
	"bytes"
	"context"
	"errors"
	"io"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"time"

	"mcpwire/client"
	"mcpwire/internal/proxy/bridge"
	"mcpwire/internal/rpc/relay"
	"mcpwire/jsonrpc"
	"mcpwire/server"
)

// TestErrorsNameUpstream checks that each error that the gateway makes for a call names the
// upstream, in both eras, and that a server's own error does not change.
func TestErrorsNameUpstream(t *testing.T) {
	srv := toolServer("up", "ok")
	must(server.AddTool(srv, "hang", "", func(ctx context.Context, _ none) (string, error) {
		<-ctx.Done()
		return "", ctx.Err()
	}))
	must(server.AddTool(srv, "bad", "", func(context.Context, none) (string, error) {
		return "", jsonrpc.Errorf(jsonrpc.CodeInternalError, "server text")
	}))
	up := overStream(srv)
	tests := []struct {
		name, tool string
		o          bridge.Options
		want       string
		legacyOnly bool
	}{
		{"not reached", "ok", bridge.Options{Connect: func(context.Context, io.Writer) (jsonrpc.Framer, error) { return nil, errors.New("no such program") }}, `"message":"up: the server cannot be started: no such program`, false},
		{"timeout", "hang", bridge.Options{Connect: up, CallTimeout: 50 * time.Millisecond}, `"message":"up: the server has not responded to tools/call`, false},
		{"too many servers", "ok", bridge.Options{Connect: up, MaxSessions: 1}, `up: too many `, true},
		{"error of the server", "bad", bridge.Options{Connect: up}, `"message":"server text"`, false},
	}
	for _, tt := range tests {
		for _, modern := range []bool{false, true} {
			if modern && tt.legacyOnly { // modern requests use the session of the catalog
				continue
			}
			era := map[bool]string{false: "legacy", true: "modern"}[modern]
			t.Run(tt.name+"/"+era, func(t *testing.T) {
				g, err := New(&Options{ListWait: time.Millisecond, Upstreams: []Upstream{{Name: "up", Bridge: tt.o}}})
				if err != nil {
					t.Fatal(err)
				}
				defer g.Close()
				p, meta := g.Stateless(), ","+modernMeta
				if !modern {
					meta = ""
					if p = g.Session(t.Context(), discardSender{}); p == nil {
						t.Fatal("got no session")
					}
					requestText(t, p, `{"jsonrpc":"2.0","id":0,"method":"initialize","params":{"protocolVersion":"2025-11-25","capabilities":{},"clientInfo":{"name":"c","version":"1"}}}`)
				}
				defer p.Close()
				if got := requestText(t, p, `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"up__`+tt.tool+`","arguments":{}`+meta+`}}`); !strings.Contains(got, tt.want) {
					t.Errorf("got %s, want %s", got, tt.want)
				}
			})
		}
	}
}

// A discardSender is a client that discards its messages.
type discardSender struct{}

func (discardSender) Send([]byte) error { return nil }

// requestText makes a request and returns the response, or the text of the error.
func requestText(t *testing.T, p relay.Peer, frame string) string {
	t.Helper()
	m := new(jsonrpc.Message)
	if err := jsonrpc.Parse([]byte(frame), m, 0); err != nil {
		t.Fatal(err)
	}
	response, err := p.Request(t.Context(), []byte(frame), m, discardSender{}, nil)
	if rejected, ok := errors.AsType[*relay.RejectedError](err); ok {
		return rejected.Reason
	}
	if err != nil {
		return err.Error()
	}
	return string(response)
}

// TestRefusableToolNames checks that the gateway logs once each exposed tool name that APIs of
// models may refuse, and exposes it all the same.
func TestRefusableToolNames(t *testing.T) {
	long := strings.Repeat("x", 62) // with the prefix longer than 64
	srv := toolServer("test", "ok", "files/read.v2", "with space é", long, strings.Repeat("y", 60))
	var log bytes.Buffer
	g, err := New(&Options{Logger: slog.New(slog.NewTextHandler(&log, &slog.HandlerOptions{Level: slog.LevelWarn})), Upstreams: []Upstream{streamUpstream("up", srv)}})
	if err != nil {
		t.Fatal(err)
	}
	for range 2 {
		c := dialStream(t, g, client.Options{})
		n := 0
		for _, err := range c.Tools(t.Context()) {
			if n++; err != nil {
				t.Fatal(err)
			}
		}
		if n != 5 {
			t.Errorf("got %d tools, want 5", n)
		}
	}
	g.Close()
	var got []string
	for line := range strings.Lines(log.String()) {
		if _, name, ok := strings.Cut(line, "may refuse a tool's name"); ok {
			_, name, _ = strings.Cut(name, "name=")
			got = append(got, strings.Trim(name, "\"\n"))
		}
	}
	slices.Sort(got)
	want := []string{"up" + Separator + "files/read.v2", "up" + Separator + "with space é", "up" + Separator + long}
	if !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
}
