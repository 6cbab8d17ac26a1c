package oauth_test

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"sync"
	"testing"

	"mcpwire/internal/test/issuer"
	"mcpwire/oauth"
)

const (
	worldServer   = "https://mcp.example.com/mcp"
	worldAS       = "https://as.example.com"
	worldSecondAS = "https://second.example.com"
	worldIDP      = "https://idp.example.com"
	worldCallback = "http://127.0.0.1:3118/callback"
)

// A world has an MCP server, its authorization servers and an identity provider. It is an in-memory
// RoundTripper. Tests set its faults before the first request.
type world struct {
	t *testing.T

	// challenge is the header of a 401; "default" names the metadata and no scope.
	challenge string
	// resource is the metadata of the server by path; nil values are 404.
	resource map[string]any
	// as has the authorization servers by origin.
	as map[string]*issuer.Issuer
	// need returns the scopes that a request to the MCP server needs.
	need func(*http.Request) []string
	// accept is the issuer whose tokens the MCP server accepts.
	accept *issuer.Issuer
	// rsNonce, if set, is the nonce that the MCP server requires in proofs.
	rsNonce string
	// odd replaces the handlers of URLs.
	odd map[string]http.HandlerFunc

	mu sync.Mutex
	// log has "METHOD URL" of all requests, without queries.
	log []string
	// sent has the headers of requests to the MCP server.
	sent []http.Header
}

// newWorld returns a world without faults.
func newWorld(t *testing.T) *world {
	w := &world{t: t, challenge: "default", odd: map[string]http.HandlerFunc{}}
	w.resource = map[string]any{
		"/.well-known/oauth-protected-resource/mcp": map[string]any{"resource": worldServer, "authorization_servers": []string{worldAS}},
	}
	w.as = map[string]*issuer.Issuer{worldAS: w.newIssuer(worldAS), worldSecondAS: w.newIssuer(worldSecondAS)}
	w.accept = w.as[worldAS]
	w.need = func(*http.Request) []string { return nil }
	return w
}

// newIssuer returns an authorization server that fails the test if the client does anything wrong.
func (w *world) newIssuer(origin string) *issuer.Issuer {
	i := issuer.New(origin)
	i.Errorf = w.t.Errorf
	return i
}

// revoke revokes all access tokens that the MCP server accepts.
func (w *world) revoke() {
	w.accept.Mu.Lock()
	defer w.accept.Mu.Unlock()
	clear(w.accept.Tokens)
}

// client returns a client of this world.
func (w *world) client(change func(*oauth.ClientOptions)) *oauth.Client {
	w.t.Helper()
	o := &oauth.ClientOptions{
		Grant:             oauth.AuthorizationCode{Prompter: w.user(nil)},
		MetadataTransport: w,
	}
	if change != nil {
		change(o)
	}
	c, err := oauth.NewClient(o)
	if err != nil {
		w.t.Fatal(err)
	}
	return c
}

// transport returns a transport of a client of this world.
func (w *world) transport(change func(*oauth.ClientOptions)) http.RoundTripper {
	w.t.Helper()
	rt, err := w.client(change).Transport(worldServer, w)
	if err != nil {
		w.t.Fatal(err)
	}
	return rt
}

// user returns a user who approves every request; edit may modify the redirect.
func (w *world) user(edit func(*url.URL)) oauth.ManualPrompter {
	return oauth.ManualPrompter{RedirectURI: worldCallback, Visit: func(ctx context.Context, address string) (string, error) {
		req, err := http.NewRequestWithContext(ctx, http.MethodGet, address, nil)
		if err != nil {
			return "", err
		}
		resp, err := w.RoundTrip(req)
		if err != nil {
			return "", err
		}
		if resp.StatusCode != http.StatusFound {
			return "", fmt.Errorf("authorize: status %d", resp.StatusCode)
		}
		u, err := resp.Location()
		if err != nil {
			return "", err
		}
		if edit != nil {
			edit(u)
		}
		return u.String(), nil
	}}
}

// post sends a request to the MCP server.
func post(ctx context.Context, rt http.RoundTripper) (*http.Response, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, worldServer, strings.NewReader("hello"))
	if err != nil {
		return nil, err
	}
	return rt.RoundTrip(req)
}

// mustPost sends a request that must succeed.
func mustPost(t *testing.T, rt http.RoundTripper) {
	t.Helper()
	resp, err := post(t.Context(), rt)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	if body, _ := io.ReadAll(resp.Body); resp.StatusCode != http.StatusOK || string(body) != "hello" {
		t.Fatalf("got status %d, body %q", resp.StatusCode, body)
	}
}

// count returns the number of requests whose "METHOD URL" ends with suffix.
func (w *world) count(suffix string) int {
	w.mu.Lock()
	defer w.mu.Unlock()
	n := 0
	for _, line := range w.log {
		if strings.HasSuffix(line, suffix) {
			n++
		}
	}
	return n
}

func (w *world) requests() []string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return slices.Clone(w.log)
}

// RoundTrip implements http.RoundTripper.
func (w *world) RoundTrip(req *http.Request) (*http.Response, error) { return issuer.RoundTrip(w, req) }

// ServeHTTP implements http.Handler.
func (w *world) ServeHTTP(out http.ResponseWriter, req *http.Request) {
	bare := *req.URL
	bare.RawQuery = ""
	w.mu.Lock()
	w.log = append(w.log, req.Method+" "+bare.String())
	if bare.String() == worldServer {
		w.sent = append(w.sent, req.Header.Clone())
	}
	odd := w.odd[bare.String()]
	w.mu.Unlock()

	origin := req.URL.Scheme + "://" + req.URL.Host
	switch {
	case odd != nil:
		odd(out, req)
	case w.as[origin] != nil:
		w.as[origin].ServeHTTP(out, req)
	case strings.HasPrefix(bare.String(), worldServer):
		w.serveMCP(out, req)
	case w.resource[bare.Path] != nil:
		issuer.Respond(out, http.StatusOK, w.resource[bare.Path])
	default:
		http.NotFound(out, req)
	}
}

// serveMCP echoes the body of requests with a valid token.
func (w *world) serveMCP(out http.ResponseWriter, req *http.Request) {
	w.mu.Lock()
	defer w.mu.Unlock()
	scheme, text, _ := strings.Cut(req.Header.Get("Authorization"), " ")
	w.accept.Mu.Lock()
	token, ok := w.accept.Tokens[text]
	w.accept.Mu.Unlock()
	challenge := w.challenge
	if challenge == "default" {
		challenge = `Bearer resource_metadata="https://mcp.example.com/.well-known/oauth-protected-resource/mcp"`
	}
	if !ok || token.Resource != worldServer || (token.Key != "") != (scheme == "DPoP") {
		if challenge != "" {
			out.Header().Set("WWW-Authenticate", challenge)
		}
		out.WriteHeader(http.StatusUnauthorized)
		return
	}
	if token.Key != "" {
		claims, key, err := issuer.CheckProof(req, worldServer, text)
		if err != nil || key != token.Key {
			w.t.Errorf("proof by %s, token for %s: %v", key, token.Key, err)
		}
		if claims["nonce"] != w.rsNonce && w.rsNonce != "" {
			out.Header().Set("WWW-Authenticate", `DPoP error="use_dpop_nonce"`)
			out.Header().Set("DPoP-Nonce", w.rsNonce)
			out.WriteHeader(http.StatusUnauthorized)
			return
		}
	}
	for _, s := range w.need(req) {
		if !slices.Contains(token.Scopes, s) {
			out.Header().Set("WWW-Authenticate", `Bearer error="insufficient_scope", scope="`+strings.Join(w.need(req), " ")+`"`)
			out.WriteHeader(http.StatusForbidden)
			return
		}
	}
	io.Copy(out, req.Body)
}
