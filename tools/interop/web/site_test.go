package web

import (
	"bytes"
	"context"
	"errors"
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

// The scopes of the sites. Each request needs scopeRead; the tool change also needs scopeWrite, and
// the tool rule scopeAdmin.
const (
	scopeRead  = "mcp:read"
	scopeWrite = "mcp:write"
	scopeAdmin = "mcp:admin"
)

// The formats of tokens. issuer.mjs has the same names.
const (
	formatJWT    = "jwt"
	formatOpaque = "opaque"
	formatShort  = "short" // JWT, valid for one second
	formatStale  = "stale" // JWT, expired when it is issued
)

// A site is an MCP server that accepts the tokens of one issuer.
type site struct {
	issuer *issuer
	url    string // of the endpoint; also the resource
	origin string
	calls  atomic.Int64 // of all tools
	server *server.Server
}

// siteOptions change the configuration of a site. Nil fields change nothing.
type siteOptions struct {
	guard         func(*auth.GuardOptions)
	introspection func(*auth.IntrospectionOptions)
	revisions     []mcp.Revision // that the site supports; nil means all
}

// An identity is the result of the tool whoami: the identity of the caller.
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
	handler := streamable.MustHandler(s.server, &streamable.Options{Scopes: requiredScopes})
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

// requiredScopes returns the scopes of a request; see [streamable.Options.Scopes].
func requiredScopes(method, name string) []string {
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

// newServer returns a server whose tools count their calls.
func (s *site) newServer(t *testing.T, o *server.Options) *server.Server {
	t.Helper()
	srv := server.MustNew("site", "1.0.0", o)
	err := server.AddTool(srv, "whoami", "Returns the identity of the caller.", func(ctx context.Context, _ empty) (identity, error) {
		s.calls.Add(1)
		p := auth.PrincipalOf(ctx)
		if p == nil {
			return identity{}, errors.New("no principal")
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

// modernCall is a modern call of the tool whoami.
const modernCall = `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"whoami","arguments":{},"_meta":{` +
	`"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientCapabilities":{}}}}`

// A reply is an HTTP response with its whole body.
type reply struct {
	status int
	header http.Header
	body   string
}

// post sends a message with headers, which are alternating names and values.
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

// checkRejected checks that a response has the status and a challenge with the code, and that no
// tool ran since there were before calls.
func (s *site) checkRejected(t *testing.T, what string, r reply, status int, code string, before int64) {
	t.Helper()
	challenge := strings.Join(r.header.Values("WWW-Authenticate"), ", ")
	if r.status != status || !strings.Contains(challenge, `error="`+code+`"`) {
		t.Errorf("%s: status = %d, challenge = %q, want %d and %s: %q", what, r.status, challenge, status, code, r.body)
	}
	if n := s.calls.Load(); n != before {
		t.Errorf("%s: calls = %d, want 0", what, n-before)
	}
}
