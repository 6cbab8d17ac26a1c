package main

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-jose/go-jose/v4"
	"github.com/google/go-cmp/cmp"

	"mcpwire/mcptest"
)

// An issuer is an authorization server for tests. It registers every client, logs in the user ada
// without asking, and signs access tokens.
type issuer struct {
	url string
	key *ecdsa.PrivateKey

	mu sync.Mutex
	// redirects are the redirect URIs of each client.
	redirects map[string][]string
	// codes are the parameters of the authorization requests by their codes.
	codes map[string]url.Values
	// steps are the requests of clients.
	steps []string
}

const keyID = "1"

func newIssuer(t *testing.T) *issuer {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	is := &issuer{key: key, redirects: map[string][]string{}, codes: map[string]url.Values{}}
	mux := http.NewServeMux()
	mux.HandleFunc("GET /.well-known/oauth-authorization-server", func(w http.ResponseWriter, _ *http.Request) {
		respond(w, http.StatusOK, map[string]any{
			"issuer":                                         is.url,
			"authorization_endpoint":                         is.url + "/authorize",
			"token_endpoint":                                 is.url + "/token",
			"registration_endpoint":                          is.url + "/register",
			"jwks_uri":                                       is.url + "/keys",
			"response_types_supported":                       []string{"code"},
			"grant_types_supported":                          []string{"authorization_code"},
			"code_challenge_methods_supported":               []string{"S256"},
			"token_endpoint_auth_methods_supported":          []string{"none"},
			"authorization_response_iss_parameter_supported": true,
		})
	})
	mux.HandleFunc("GET /keys", func(w http.ResponseWriter, _ *http.Request) {
		respond(w, http.StatusOK, jose.JSONWebKeySet{Keys: []jose.JSONWebKey{{Key: key.Public(), KeyID: keyID, Algorithm: "ES256", Use: "sig"}}})
	})
	mux.HandleFunc("POST /register", is.register)
	mux.HandleFunc("GET /authorize", is.authorize)
	mux.HandleFunc("POST /token", is.token)
	site := httptest.NewServer(mux)
	t.Cleanup(site.Close)
	is.url = site.URL
	return is
}

func respond(w http.ResponseWriter, status int, body any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	json.NewEncoder(w).Encode(body)
}

func (is *issuer) register(w http.ResponseWriter, r *http.Request) {
	var metadata struct {
		RedirectURIs []string `json:"redirect_uris"`
	}
	if err := json.NewDecoder(r.Body).Decode(&metadata); err != nil {
		respond(w, http.StatusBadRequest, map[string]string{"error": "invalid_client_metadata"})
		return
	}
	id := rand.Text()
	is.mu.Lock()
	defer is.mu.Unlock()
	is.steps = append(is.steps, "register")
	is.redirects[id] = metadata.RedirectURIs
	respond(w, http.StatusCreated, map[string]any{
		"client_id": id, "redirect_uris": metadata.RedirectURIs, "token_endpoint_auth_method": "none", "application_type": "native",
	})
}

// authorize is the page at which a user would log in and agree.
func (is *issuer) authorize(w http.ResponseWriter, r *http.Request) {
	q := r.URL.Query()
	is.mu.Lock()
	defer is.mu.Unlock()
	is.steps = append(is.steps, "authorize "+q.Get("scope"))
	redirect := q.Get("redirect_uri")
	if !slices.Contains(is.redirects[q.Get("client_id")], redirect) || q.Get("response_type") != "code" || q.Get("code_challenge_method") != "S256" {
		http.Error(w, "invalid request", http.StatusBadRequest)
		return
	}
	code := rand.Text()
	is.codes[code] = q
	http.Redirect(w, r, redirect+"?"+url.Values{"code": {code}, "state": {q.Get("state")}, "iss": {is.url}}.Encode(), http.StatusFound)
}

func (is *issuer) token(w http.ResponseWriter, r *http.Request) {
	is.mu.Lock()
	defer is.mu.Unlock()
	is.steps = append(is.steps, "token "+r.PostFormValue("grant_type"))
	asked, ok := is.codes[r.PostFormValue("code")]
	delete(is.codes, r.PostFormValue("code"))
	challenge := sha256.Sum256([]byte(r.PostFormValue("code_verifier")))
	if !ok || asked.Get("code_challenge") != base64.RawURLEncoding.EncodeToString(challenge[:]) ||
		asked.Get("client_id") != r.PostFormValue("client_id") || asked.Get("redirect_uri") != r.PostFormValue("redirect_uri") ||
		asked.Get("resource") != r.PostFormValue("resource") {
		respond(w, http.StatusBadRequest, map[string]string{"error": "invalid_grant"})
		return
	}
	token, err := is.sign(asked.Get("resource"), asked.Get("client_id"), asked.Get("scope"))
	if err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	respond(w, http.StatusOK, map[string]any{"access_token": token, "token_type": "Bearer", "expires_in": 300, "scope": asked.Get("scope")})
}

// sign returns an access token for ada, as in RFC 9068.
func (is *issuer) sign(audience, clientID, scope string) (string, error) {
	opts := (&jose.SignerOptions{}).WithType("at+jwt").WithHeader("kid", keyID)
	signer, err := jose.NewSigner(jose.SigningKey{Algorithm: jose.ES256, Key: is.key}, opts)
	if err != nil {
		return "", err
	}
	now := time.Now()
	claims, err := json.Marshal(map[string]any{
		"iss": is.url, "sub": "ada", "aud": audience, "client_id": clientID, "scope": scope, "jti": rand.Text(),
		"iat": now.Unix(), "exp": now.Add(5 * time.Minute).Unix(),
	})
	if err != nil {
		return "", err
	}
	signed, err := signer.Sign(claims)
	if err != nil {
		return "", err
	}
	return signed.CompactSerialize()
}

// startServer returns the URL of the program's server, with the tokens of is.
func startServer(t *testing.T, is *issuer) string {
	site := httptest.NewUnstartedServer(nil)
	resource := "http://" + site.Listener.Addr().String() + "/mcp"
	h, shutdown, err := newHandler(resource, is.url)
	if err != nil {
		t.Fatal(err)
	}
	site.Config.Handler = h
	site.Start()
	t.Cleanup(func() {
		if err := shutdown(context.Background()); err != nil {
			t.Errorf("shutdown: %v", err)
		}
		site.Close()
	})
	return resource
}

func TestLogin(t *testing.T) {
	is := newIssuer(t)
	endpoint := startServer(t, is)
	var browser sync.WaitGroup
	defer browser.Wait()
	open := func(loginURL string) { // as a browser does
		browser.Go(func() {
			resp, err := http.Get(loginURL)
			if err != nil {
				t.Errorf("open %s: %v", loginURL, err)
				return
			}
			resp.Body.Close()
		})
	}
	var stdout strings.Builder
	err := call(t.Context(), endpoint, open, &stdout)
	if want := "ada\n"; stdout.String() != want || err != nil {
		t.Errorf("got %q, %v, want %q", stdout.String(), err, want)
	}
	if diff := cmp.Diff([]string{"register", "authorize notes", "token authorization_code"}, is.steps); diff != "" {
		t.Errorf("requests to the authorization server (-want +got):\n%s", diff)
	}
}

func TestTokens(t *testing.T) {
	is, other := newIssuer(t), newIssuer(t)
	endpoint := startServer(t, is)
	sign := func(is *issuer, audience, scope string) string {
		token, err := is.sign(audience, "test", scope)
		if err != nil {
			t.Fatal(err)
		}
		return token
	}
	for _, tt := range []struct {
		name, token string
		want        int
	}{
		{"valid", sign(is, endpoint, scope), http.StatusOK},
		{"missing", "", http.StatusUnauthorized},
		{"of another issuer", sign(other, endpoint, scope), http.StatusUnauthorized},
		{"for another server", sign(is, "http://127.0.0.1:1/mcp", scope), http.StatusUnauthorized},
		{"without the scope", sign(is, endpoint, "mail"), http.StatusForbidden},
	} {
		t.Run(tt.name, func(t *testing.T) {
			body := `{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-11-25","capabilities":{},"clientInfo":{"name":"test","version":"1"}}}`
			req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, endpoint, strings.NewReader(body))
			if err != nil {
				t.Fatal(err)
			}
			req.Header.Set("Content-Type", "application/json")
			req.Header.Set("Accept", "application/json, text/event-stream")
			if tt.token != "" {
				req.Header.Set("Authorization", "Bearer "+tt.token)
			}
			resp, err := http.DefaultClient.Do(req)
			if err != nil {
				t.Fatal(err)
			}
			defer resp.Body.Close()
			text, err := io.ReadAll(resp.Body)
			if resp.StatusCode != tt.want || err != nil {
				t.Errorf("got %s, %v, want status %d: %s", resp.Status, err, tt.want, text)
			}
			challenge := resp.Header.Get("WWW-Authenticate")
			if got := strings.Contains(challenge, "resource_metadata="); got != (tt.want != http.StatusOK) {
				t.Errorf("WWW-Authenticate: got %q", challenge)
			}
		})
	}
}

func TestServe(t *testing.T) {
	mcptest.CheckLeaks(t)
	ctx, stop := context.WithCancel(t.Context())
	stop()
	if err := serve(ctx, "127.0.0.1:0", "https://login.example.com"); err != nil {
		t.Errorf("serve ended with %v", err)
	}
	if err := serve(t.Context(), "127.0.0.1:0", "login.example.com"); err == nil {
		t.Error("a server with an invalid issuer started")
	}
}
