package web

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"mcpwire/auth"
	"mcpwire/mcp"
	"mcpwire/server"
	"mcpwire/streamable"
)

// Scopes of the sites: each request needs the first, and the tools change and
// rule need more.
const (
	scopeRead  = "mcp:read"
	scopeWrite = "mcp:write"
	scopeAdmin = "mcp:admin"
)

// The formats of tokens, as issuer.mjs has them.
const (
	formatJWT    = "jwt"
	formatOpaque = "opaque"
	formatShort  = "short" // JWT, good for a second
	formatStale  = "stale" // JWT, expired when it is issued
)

// A site is an MCP server that takes the tokens of one issuer.
type site struct {
	issuer *issuer
	url    string // of the endpoint; also the resource
	origin string
	calls  atomic.Int64 // of all tools
	server *server.Server
}

// siteOptions change the parts of a site; all may be nil.
type siteOptions struct {
	guard         func(*auth.GuardOptions)
	introspection func(*auth.IntrospectionOptions)
	revisions     []mcp.Revision // all that the site speaks
}

// An identity is who calls, as the tool whoami sees it.
type identity struct {
	Subject  string   `json:"subject"`
	ClientID string   `json:"client_id"`
	Issuer   string   `json:"issuer"`
	Scopes   []string `json:"scopes"`
	Bound    bool     `json:"bound"` // to a key
}

type empty struct{}

func newSite(t *testing.T, is *issuer, format string, o siteOptions) *site {
	t.Helper()
	s := &site{issuer: is}
	ts := httptest.NewUnstartedServer(nil)
	s.origin = "http://" + ts.Listener.Addr().String()
	s.url = s.origin + "/" + format + "/mcp"
	s.server = s.newServer(t, &server.Options{Revisions: o.revisions})
	handler := streamable.MustHandler(s.server, &streamable.Options{Scopes: needed})
	guard, err := auth.NewGuard(s.guardOptions(t, format, o))
	if err != nil {
		t.Fatal(err)
	}
	ts.Config.Handler = guard.Handler(handler)
	ts.Start()
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
		defer cancel()
		if err := handler.Shutdown(ctx); err != nil {
			t.Errorf("shutdown: %v", err)
		}
		ts.Close()
	})
	return s
}

// needed is [streamable.Options.Scopes].
func needed(method, name string) []string {
	switch {
	case method == "tools/call" && name == "change":
		return []string{scopeWrite}
	case method == "tools/call" && name == "rule":
		return []string{scopeAdmin}
	}
	return nil
}

func (s *site) guardOptions(t *testing.T, format string, o siteOptions) *auth.GuardOptions {
	t.Helper()
	g := &auth.GuardOptions{
		Resource:             s.url,
		Verifier:             s.verifier(t, format, o.introspection),
		AuthorizationServers: []string{s.issuer.url},
		ScopesSupported:      []string{scopeRead},
		RequiredScopes:       []string{scopeRead},
		Name:                 "a site",
	}
	if o.guard != nil {
		o.guard(g)
	}
	return g
}

func (s *site) verifier(t *testing.T, format string, change func(*auth.IntrospectionOptions)) auth.Verifier {
	t.Helper()
	if format != formatOpaque {
		v, err := auth.NewJWT(&auth.JWTOptions{Issuer: s.issuer.url, Audiences: []string{s.url}, Strict: true})
		if err != nil {
			t.Fatal(err)
		}
		return v
	}
	opts := &auth.IntrospectionOptions{
		Endpoint:     s.issuer.url + "/token/introspection",
		Issuer:       s.issuer.url,
		Audiences:    []string{s.url},
		ClientID:     introspectorID,
		ClientSecret: auth.NewSecret(introspectorPW),
	}
	if change != nil {
		change(opts)
	}
	v, err := auth.NewIntrospection(opts)
	if err != nil {
		t.Fatal(err)
	}
	return v
}

// newServer returns one whose tools count their calls.
func (s *site) newServer(t *testing.T, o *server.Options) *server.Server {
	t.Helper()
	srv := server.MustNew("site", "1.0.0", o)
	err := server.AddTool(srv, "whoami", "Says who calls.", func(ctx context.Context, _ empty) (identity, error) {
		s.calls.Add(1)
		p, ok := server.CallOf(ctx).Principal().Claims.(*auth.Principal)
		if !ok {
			return identity{}, fmt.Errorf("nobody in particular")
		}
		return identity{p.Subject, p.ClientID, p.Issuer, p.Scopes, p.KeyThumbprint != ""}, nil
	})
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"change", "rule"} {
		err := server.AddTool(srv, name, "Needs more scopes.", func(context.Context, empty) (string, error) {
			s.calls.Add(1)
			return "done", nil
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	return srv
}

// modernCall is a call of the tool whoami in the stateless revision.
const modernCall = `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"whoami","arguments":{},"_meta":{` +
	`"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientCapabilities":{}}}}`

// A reply is an HTTP response that was read to its end.
type reply struct {
	status int
	header http.Header
	body   string
}

// post sends a message with headers, given as names and values in turn.
func (s *site) post(t *testing.T, body string, header ...string) reply {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, s.url, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("Accept", "application/json, text/event-stream")
	for i := 0; i < len(header); i += 2 {
		req.Header.Set(header[i], header[i+1])
	}
	return send(t, req)
}

// call sends modernCall with an Authorization header and others.
func (s *site) call(t *testing.T, authorization string, header ...string) reply {
	t.Helper()
	all := append([]string{
		"Authorization", authorization, "MCP-Protocol-Version", "2026-07-28", "Mcp-Method", "tools/call", "Mcp-Name", "whoami",
	}, header...)
	return s.post(t, modernCall, all...)
}

func send(t *testing.T, req *http.Request) reply {
	t.Helper()
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return reply{resp.StatusCode, resp.Header, string(bytes.TrimSpace(body))}
}

// refused fails the test unless a request was answered with the status and a
// challenge that has the code, and did nothing.
func (s *site) refused(t *testing.T, what string, r reply, status int, code string, before int64) {
	t.Helper()
	challenge := strings.Join(r.header.Values("WWW-Authenticate"), ", ")
	if r.status != status || !strings.Contains(challenge, `error="`+code+`"`) {
		t.Errorf("%s: got status %d, challenge %q, body %q; want %d %s", what, r.status, challenge, r.body, status, code)
	}
	if n := s.calls.Load(); n != before {
		t.Errorf("%s: %d tools ran", what, n-before)
	}
}
