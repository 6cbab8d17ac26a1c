package matrix

import (
	"context"
	"encoding/json"
	"errors"
	"testing"

	"mcpwire/client"
	"mcpwire/jsonrpc"
	"mcpwire/mcp"
	"mcpwire/mcptest"
	"mcpwire/server"
)

// newHandshakeServer returns a server with all capabilities and all members of its info.
func newHandshakeServer(func()) *server.Server {
	srv := server.MustNew("library", "3.1", &server.Options{
		Info: server.Info{
			Title:       "The library",
			Description: "All books.",
			WebsiteURL:  "https://example.com/",
			Icons:       []mcp.Icon{{Src: "https://example.com/icon.png", MIMEType: "image/png"}},
		},
		Instructions: "Ask for the shelf first.",
		Extensions:   map[string]json.RawMessage{"com.example/shelves": json.RawMessage(`{"max":7}`)},
		Experimental: map[string]json.RawMessage{"dreams": json.RawMessage(`{}`)},
	})
	must(
		server.AddTool(srv, "client", "", func(ctx context.Context, _ struct{}) (string, error) {
			call := server.CallOf(ctx)
			info := call.ClientInfo()
			return info.Name + " " + info.Version + " " + info.Title, nil
		}),
		server.AddResource(srv, mcp.Resource{URI: "lib://a", Name: "a"}, server.Static("A")),
		server.AddPrompt(srv, mcp.Prompt{Name: "p"}, func(context.Context, struct {
			Shelf string `json:"shelf"`
		}) (string, error) {
			return "", nil
		}, server.CompleteFrom("shelf", "upper")),
	)
	return srv
}

// newEmptyServer returns a server without tools, resources and prompts.
func newEmptyServer(func()) *server.Server { return server.MustNew("empty", "1", nil) }

// newServerOf returns a function that makes a server which speaks one revision.
func newServerOf(r mcp.Revision) func(func()) *server.Server {
	return func(func()) *server.Server {
		return server.MustNew("one", "1", &server.Options{Revisions: []mcp.Revision{r}})
	}
}

// withServer returns a subtest with another server.
func (s *subtest) withServer(server string) *subtest {
	return &subtest{s.T, s.features, s.cell, server, &cellState{t: s.T}}
}

func TestHandshake(t *testing.T) {
	testBehaviors(t, "handshake", []behavior{
		// Spec: S40
		{name: "revision", test: func(s *subtest) {
			c := s.client()
			same(s, "revision", c.Revision(), s.revision)
			same(s, "modern", c.Revision().Modern(), s.Modern)
		}},
		// Spec: S39
		{name: "server info", test: func(s *subtest) {
			want := mcp.Implementation{Name: "library", Version: "3.1"}
			if s.Titles {
				want.Title = "The library"
			}
			if s.Icons {
				want.Description, want.WebsiteURL = "All books.", "https://example.com/"
				want.Icons = []mcp.Icon{{Src: "https://example.com/icon.png", MIMEType: "image/png"}}
			}
			same(s, "server info", s.client().Profile().Server, want)
			same(s, "instructions", s.client().Profile().Instructions, "Ask for the shelf first.")
		}},
		{name: "client info", test: func(s *subtest) {
			want := "matrix 1 "
			if s.Titles {
				want += "The matrix"
			}
			same(s, "client info", s.call(s.client(), "client", nil), want)
		}},
		// Spec: S122 S123 S124 S125 S126
		{name: "capabilities", test: func(s *subtest) {
			want := mcp.ServerCapabilities{
				Logging:      json.RawMessage(`{}`),
				Tools:        &mcp.ToolsCapability{ListChanged: true},
				Prompts:      &mcp.PromptsCapability{ListChanged: true},
				Resources:    &mcp.ResourcesCapability{ListChanged: true, Subscribe: true},
				Experimental: map[string]json.RawMessage{"dreams": json.RawMessage(`{}`)},
				Extensions:   map[string]json.RawMessage{"com.example/shelves": json.RawMessage(`{"max":7}`)},
			}
			if s.Completions {
				want.Completions = json.RawMessage(`{}`)
			}
			same(s, "capabilities", s.client().Profile().Capabilities, want)
		}},
		{name: "no capabilities", test: func(s *subtest) {
			c := s.withServer("empty").dial(nil)
			same(s, "capabilities", c.Profile().Capabilities, mcp.ServerCapabilities{Logging: json.RawMessage(`{}`)})
			_, err := c.ListTools(s.Context(), nil)
			wantError(s, "list tools", err, jsonrpc.CodeMethodNotFound)
			_, err = c.ReadResource(s.Context(), "lib://a")
			wantError(s, "read", err, jsonrpc.CodeMethodNotFound)
			_, err = c.GetPrompt(s.Context(), "p", nil)
			wantError(s, "prompt", err, jsonrpc.CodeMethodNotFound)
		}},
		// Spec: S36
		{name: "discover", when: modern, test: func(s *subtest) {
			res, err := s.client().Discover(s.Context())
			ok(s, "discover", err)
			same(s, "versions", res.SupportedVersions, []string{"2026-07-28", "2025-11-25", "2025-06-18", "2025-03-26", "2024-11-05"})
			if res.TTLMs != nil && *res.TTLMs != 0 || res.CacheScope != mcp.CacheScopePrivate || res.ResultType != mcp.ResultTypeComplete {
				s.Errorf("got ttlMs %v, cacheScope %q, resultType %q", res.TTLMs, res.CacheScope, res.ResultType)
			}
		}, instead: func(s *subtest) {
			if _, err := s.client().Discover(s.Context()); !errors.Is(err, errors.ErrUnsupported) {
				s.Errorf("got %v", err)
			}
		}},
		{name: "ping", test: func(s *subtest) { ok(s, "ping", s.client().Ping(s.Context())) }},
		// Spec: S62
		{name: "ping messages", when: legacy, test: func(s *subtest) {
			p := s.peer()
			p.Send(mcptest.Request(s.revision, 1, mcp.MethodPing, ""))
			p.Expect(mcptest.Result(1, `{}`))
		}, instead: func(s *subtest) {
			p := s.peer()
			p.Send(mcptest.Request(s.revision, 1, mcp.MethodPing, ""))
			p.Expect(`{"jsonrpc":"2.0","id":1,"error":{"code":-32601,"$any":"$any"}}`)
		}},
		// Spec: S34 S41
		{name: "an unknown revision", when: legacy, test: func(s *subtest) {
			p := s.peerWithoutHandshake()
			p.Send(`{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2099-01-01","capabilities":{},"clientInfo":{"name":"x","version":"1"}}}`)
			p.Expect(mcptest.Result(1, `{"protocolVersion":"2025-11-25","$any":"$any"}`))
			p.Send(mcptest.Initialized)
		}, instead: func(s *subtest) {
			p := s.peerWithoutHandshake()
			p.Send(`{"jsonrpc":"2.0","id":1,"method":"tools/list","params":{"_meta":{"io.modelcontextprotocol/protocolVersion":"2099-01-01",` +
				`"io.modelcontextprotocol/clientCapabilities":{}}}}`)
			p.Expect(`{"jsonrpc":"2.0","id":1,"error":{"code":-32022,"message":"$any","data":{"requested":"2099-01-01",` +
				`"supported":["2026-07-28"]}}}`)
		}},
		// Spec: S29
		{name: "requests without metadata", when: legacy, test: func(s *subtest) {
			p := s.peer()
			p.Send(`{"jsonrpc":"2.0","id":1,"method":"prompts/list"}`)
			p.Expect(mcptest.Result(1, `{"prompts":["$any"]}`))
		}, instead: func(s *subtest) {
			p := s.peer()
			p.Send(`{"jsonrpc":"2.0","id":1,"method":"prompts/list","params":{"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28"}}}`)
			p.Expect(`{"jsonrpc":"2.0","id":1,"error":{"code":-32602,"$any":"$any"}}`)
		}},
		{name: "requests before the handshake", when: legacy, test: func(s *subtest) {
			p := s.peerWithoutHandshake()
			p.Send(mcptest.Request(s.revision, 1, mcp.MethodPromptsList, ""))
			p.Expect(`{"jsonrpc":"2.0","id":1,"error":{"code":-32600,"$any":"$any"}}`)
			p.Send(mcptest.Request(s.revision, 2, mcp.MethodPing, ""))
			p.Expect(mcptest.Result(2, `{}`))
		}, unless: []exception{{streamableHTTP, legacy, "without the session that the handshake opens, requests are rejected with an HTTP status"}}, instead: func(s *subtest) { // without a session
			p := s.peerWithoutHandshake()
			p.Send(mcptest.Request(s.revision, 1, mcp.MethodPromptsList, ""))
			p.Expect(mcptest.Result(1, `{"prompts":["$any"],"resultType":"complete","ttlMs":0,"cacheScope":"private","_meta":{"io.modelcontextprotocol/serverInfo":"$any"}}`))
		}},
		// Spec: C28
		{name: "no common revision", test: func(s *subtest) {
			for _, r := range mcp.Revisions() {
				if r == s.revision || s.web != nil && s.web.sse && r == mcp.Revision20260728 { // HTTP+SSE does not support it
					continue
				}
				_, err := s.tryDial(s.withServer(r.String()).host(""), nil)
				if _, is := errors.AsType[*client.IncompatibleError](err); !is {
					s.Errorf("with a server of %v: got %v", r, err)
				}
			}
		}},
		{name: "the newest common revision", test: func(s *subtest) {
			c := s.dial(func(o *client.Options) { o.Revisions = mcp.Revisions()[:s.revision] })
			same(s, "revision", c.Revision(), s.revision)
		}},
		{name: "a known profile", test: func(s *subtest) {
			known := s.client().Profile()
			text, err := json.Marshal(known)
			ok(s, "marshal", err)
			known = client.Profile{}
			ok(s, "unmarshal", json.Unmarshal(text, &known))
			var w wire
			c := s.dial(func(o *client.Options) {
				o.Profile = &known
				w.record(o)
			})
			same(s, "revision", c.Revision(), s.revision)
			same(s, "result", s.call(c, "client", nil), s.call(s.client(), "client", nil))
			same(s, "probes", w.count(`"`+mcp.MethodDiscover+`"`), 0)
			handshakes := 1
			if s.Modern {
				handshakes = 0
			}
			same(s, "handshakes", w.count("> ", `"`+mcp.MethodInitialize+`"`), handshakes)
		}},
		{name: "an extension", test: func(s *subtest) {
			settings := s.client().Profile().Capabilities.Extensions["com.example/shelves"]
			same(s, "settings", string(settings), `{"max":7}`)
		}},
	})
}
