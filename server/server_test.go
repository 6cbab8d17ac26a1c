package server_test

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"mcpwire/jsonrpc"
	"mcpwire/mcp"
	"mcpwire/server"
)

// Spec: S36
func TestRevisionOptions(t *testing.T) {
	opts := &server.Options{Revisions: []mcp.Revision{mcp.Revision20260728, mcp.Revision20241105, mcp.Revision20260728}}
	srv := server.MustNew("test", "1", opts)
	opts.Revisions[1] = mcp.Revision20250618 // New has copied the options
	got := connect(t, srv, modern).must("server/discover", "{}")
	if want := `"supportedVersions":["2026-07-28","2024-11-05"]`; !strings.Contains(got, want) {
		t.Errorf("got %s, want %s in it", got, want)
	}
	for _, r := range []mcp.Revision{mcp.RevisionNone, mcp.LatestRevision + 1, 255} {
		if _, err := server.New("test", "1", &server.Options{Revisions: []mcp.Revision{mcp.Revision20250618, r}}); err == nil || !strings.Contains(err.Error(), "Options.Revisions") {
			t.Errorf("New with revision %d: got %v", r, err)
		}
	}
}

func TestUnknownKind(t *testing.T) {
	_, err := server.New("test", "1", &server.Options{AdvertiseKinds: []server.Kind{server.KindTool, "tools"}})
	if want := `server.New: Options.AdvertiseKinds: unknown kind "tools"`; err == nil || err.Error() != want {
		t.Errorf("New = %v, want %s", err, want)
	}
}

// TestMustNew shows that MustNew panics with the error of New.
func TestMustNew(t *testing.T) {
	defer func() {
		if v := recover(); v == nil || !strings.Contains(fmt.Sprint(v), "Options.Revisions") {
			t.Errorf("recovered %v", v)
		}
	}()
	server.MustNew("test", "1", &server.Options{Revisions: []mcp.Revision{mcp.RevisionNone}})
}

// Spec: S116 S117
func TestCacheHints(t *testing.T) {
	for _, tt := range []struct {
		opts server.Options
		want string
	}{
		{server.Options{}, `"ttlMs":0,"cacheScope":"private"`},
		{server.Options{Cache: server.CacheOptions{ListTTL: -time.Hour}}, `"ttlMs":0,"cacheScope":"private"`},
		{server.Options{Cache: server.CacheOptions{ListTTL: 1500 * time.Microsecond, ListPublic: true}}, `"ttlMs":1,"cacheScope":"public"`},
	} {
		tt.opts.AdvertiseKinds = []server.Kind{server.KindTool}
		c := connect(t, server.MustNew("test", "1", &tt.opts), modern)
		for _, method := range []string{"server/discover", "tools/list"} {
			if got := c.must(method, "{}"); !strings.Contains(got, tt.want) {
				t.Errorf("%s: got %s, want %s in it", method, got, tt.want)
			}
		}
	}
}

// TestIdentity shows that each revision gets the members of Implementation that it defines.
func TestIdentity(t *testing.T) {
	srv := server.MustNew("n", "v", &server.Options{Info: server.Info{Title: "T", Description: "D", WebsiteURL: "https://example.com", Icons: []mcp.Icon{{Src: "data:,"}}}, AdvertiseKinds: []server.Kind{server.KindTool}})
	short := `{"name":"n","version":"v"}`
	titled := `{"name":"n","version":"v","title":"T"}`
	full := `{"name":"n","version":"v","title":"T","description":"D","websiteUrl":"https://example.com","icons":[{"src":"data:,"}]}`
	for revision, want := range map[string]string{"2024-11-05": short, "2025-03-26": short, "2025-06-18": titled, "2025-11-25": full} {
		c := connect(t, srv, modern) // connect performs no handshake for a modern client
		c.revision = revision
		got := c.must("initialize", `{"protocolVersion":"`+revision+`"}`)
		if !strings.Contains(got, `"serverInfo":`+want) {
			t.Errorf("%s: got %s, want %s in it", revision, got, want)
		}
	}
	// Only server/discover has all of it: each other result would repeat the icons.
	for method, want := range map[string]string{"server/discover": full, "tools/list": titled} {
		got := connect(t, srv, modern).must(method, "{}")
		if !strings.Contains(got, `"_meta":{"io.modelcontextprotocol/serverInfo":`+want+`}`) {
			t.Errorf("%s: got %s, want %s in it", method, got, want)
		}
	}
}

// TestOwnServerInfo shows that a tool that acts for another server may name that server.
func TestOwnServerInfo(t *testing.T) {
	for meta, want := range map[string]string{
		`{}`:          `{"io.modelcontextprotocol/serverInfo":{"name":"test","version":"1"}}`,
		` { "a": 1 }`: `{"a":1,"io.modelcontextprotocol/serverInfo":{"name":"test","version":"1"}}`,
		`{"io.modelcontextprotocol/serverInfo":{"name":"other"}}`:       `{"io.modelcontextprotocol/serverInfo":{"name":"other"}}`,
		`{"io.modelcontextprotocol\/server\u0049nfo":{"name":"other"}}`: `{"io.modelcontextprotocol\/server\u0049nfo":{"name":"other"}}`,
	} {
		srv := with(t, nil, func(context.Context, *server.Call) (*mcp.CallToolResult, error) {
			return &mcp.CallToolResult{Meta: json.RawMessage(meta)}, nil
		})
		if got := connect(t, srv, modern).must("tools/call", `{"name":"t"}`); got != `{"content":[],"resultType":"complete","_meta":`+want+`}` {
			t.Errorf("%s: got %s", meta, got)
		}
	}
}

// TestDrain checks that accepted requests finish after the end of the server's context, and fail
// after the timeout.
func TestDrain(t *testing.T) {
	for _, goroutines := range []bool{false, true} {
		for _, tt := range []struct {
			takes, timeout time.Duration
			answered       bool
		}{
			{time.Minute, time.Hour, true},
			{time.Hour, time.Minute, false},
		} {
			synctest.Test(t, func(t *testing.T) {
				opts := &server.Options{Limits: server.Limits{DrainTimeout: tt.timeout}, Goroutines: goroutines}
				srv := with(t, opts, func(ctx context.Context, _ *server.Call) (*mcp.CallToolResult, error) {
					select {
					case <-ctx.Done():
					case <-time.After(tt.takes):
					}
					return nil, nil
				})
				rec := &recorder{feed: feed{frames: []string{`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"_meta":{` + modernMeta + `},"name":"t"}}`}}}
				err := srv.Serve(t.Context(), rec)
				if len(rec.got) != 1 || strings.Contains(rec.got[0], `"result"`) != tt.answered || (err == nil) != tt.answered {
					t.Errorf("got %q, %v", rec.got, err)
				}
			})
		}
	}
}

// A recorder is a feed that records the responses.
type recorder struct {
	feed
	got []string
}

func (r *recorder) WriteFrame(msg []byte) error {
	r.got = append(r.got, string(msg))
	return nil
}

// TestTrace shows that Trace gets each message with its direction.
func TestTrace(t *testing.T) {
	var got []string
	srv := with(t, &server.Options{Trace: func(dir jsonrpc.Direction, message []byte) {
		got = append(got, []string{"> ", "< "}[dir]+string(message))
	}}, func(context.Context, *server.Call) (*mcp.CallToolResult, error) { return nil, nil })
	ping := `{"jsonrpc":"2.0","id":1,"method":"ping"}`
	rec := &recorder{feed: feed{frames: []string{ping, "oops"}}}
	if err := srv.Serve(t.Context(), rec); err != nil {
		t.Fatal(err)
	}
	want := []string{"> " + ping, `< {"jsonrpc":"2.0","id":1,"result":{}}`, "> oops", "< " + rec.got[1]}
	if strings.Join(got, "\n") != strings.Join(want, "\n") {
		t.Errorf("got %q, want %q", got, want)
	}
}

// TestMaxInFlightBytes checks that requests wait while the messages of those being handled are too
// large.
func TestMaxInFlightBytes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		srv := server.MustNew("test", "1", &server.Options{Limits: server.Limits{MaxInFlightBytes: 1}})
		running := make(chan struct{}, 2)
		if err := server.AddTool(srv, "wait", "", func(ctx context.Context, _ empty) (string, error) {
			running <- struct{}{}
			<-ctx.Done()
			return "", ctx.Err()
		}); err != nil {
			t.Fatal(err)
		}
		c := connect(t, srv, modern)
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error, 2)
		for range 2 {
			go func() {
				_, err := c.call(ctx, "tools/call", `{"name":"wait"}`)
				ended <- err
			}()
		}
		synctest.Wait()
		if n := len(running); n != 1 { // one request is handled, however large
			t.Errorf("%d are being handled", n)
		}
		cancel()
		<-ended
		<-ended
		synctest.Wait() // the server has read the request
	})
}
