package auth_test

import (
	"context"
	"crypto"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-jose/go-jose/v4"

	"mcpwire/auth"
)

const (
	rsIssuer   = "https://login.example.com/tenant"
	rsResource = "https://api.example.com/mcp"
	rsKeysURL  = "https://login.example.com/keys"
)

// rsRoutes is the RoundTripper of an HTTP client, with a response for each URL. It counts the
// requests.
type rsRoutes struct {
	mu      sync.Mutex
	answers map[string]func(*http.Request) (status int, header http.Header, body string)
	hits    map[string]int
}

func (r *rsRoutes) RoundTrip(req *http.Request) (*http.Response, error) {
	key := req.URL.String()
	r.mu.Lock()
	answer := r.answers[key]
	if r.hits == nil {
		r.hits = map[string]int{}
	}
	r.hits[key]++
	r.mu.Unlock()
	status, header, body := http.StatusNotFound, http.Header{}, ""
	if answer != nil {
		status, header, body = answer(req)
	}
	if err := req.Context().Err(); err != nil {
		return nil, err
	}
	if status == 0 {
		return nil, io.ErrUnexpectedEOF
	}
	if header == nil {
		header = http.Header{"Content-Type": {"application/json"}}
	}
	return &http.Response{StatusCode: status, Header: header, Body: io.NopCloser(strings.NewReader(body)), Request: req}, nil
}

func (r *rsRoutes) client() *http.Client { return &http.Client{Transport: r} }

func (r *rsRoutes) count(url string) int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.hits[url]
}

func (r *rsRoutes) on(url string, answer func(*http.Request) (int, http.Header, string)) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.answers == nil {
		r.answers = map[string]func(*http.Request) (int, http.Header, string){}
	}
	r.answers[url] = answer
}

// say sets the response of a URL to the JSON of a value; a nil value makes the request fail.
func (r *rsRoutes) say(url string, v any) {
	text, err := json.Marshal(v)
	if err != nil {
		panic(err)
	}
	r.on(url, func(*http.Request) (int, http.Header, string) {
		if v == nil {
			return 0, nil, ""
		}
		return http.StatusOK, nil, string(text)
	})
}

// rsKey is a key of the issuer or of a client.
type rsKey struct {
	id      string
	alg     jose.SignatureAlgorithm
	private crypto.Signer
}

func newRSKey(t testing.TB, id string) rsKey {
	t.Helper()
	k, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	return rsKey{id, jose.ES256, k}
}

// fixedRSKey returns a key that is the same in all runs, and so are its signatures.
func fixedRSKey(id string) rsKey {
	return rsKey{id, jose.EdDSA, ed25519.NewKeyFromSeed([]byte("a seed that has 32 bytes exactly"))}
}

func (k rsKey) jwk() jose.JSONWebKey {
	return jose.JSONWebKey{Key: k.private.Public(), KeyID: k.id, Algorithm: string(k.alg), Use: "sig"}
}

func (k rsKey) thumbprint(t testing.TB) string {
	t.Helper()
	jwk := k.jwk()
	b, err := jwk.Thumbprint(crypto.SHA256)
	if err != nil {
		t.Fatal(err)
	}
	return base64.RawURLEncoding.EncodeToString(b)
}

func rsKeySet(keys ...rsKey) jose.JSONWebKeySet {
	var set jose.JSONWebKeySet
	for _, k := range keys {
		set.Keys = append(set.Keys, k.jwk())
	}
	return set
}

// sign returns a JWT with exactly these parts; values may be json.RawMessage.
func (k rsKey) sign(t testing.TB, head map[string]any, payload []byte) string {
	t.Helper()
	opts := &jose.SignerOptions{ExtraHeaders: map[jose.HeaderKey]any{}}
	for name, v := range head {
		opts.ExtraHeaders[jose.HeaderKey(name)] = v
	}
	signer, err := jose.NewSigner(jose.SigningKey{Algorithm: k.alg, Key: k.private}, opts)
	if err != nil {
		t.Fatal(err)
	}
	signed, err := signer.Sign(payload)
	if err != nil {
		t.Fatal(err)
	}
	text, err := signed.CompactSerialize()
	if err != nil {
		t.Fatal(err)
	}
	return text
}

// with returns a copy of m with changes; nil removes a member.
func with(m, changes map[string]any) map[string]any {
	m = maps.Clone(m)
	for k, v := range changes {
		if v == nil {
			delete(m, k)
		} else {
			m[k] = v
		}
	}
	return m
}

func rsClaims() map[string]any {
	now := time.Now()
	return map[string]any{
		"iss": rsIssuer, "aud": rsResource, "sub": "alice", "client_id": "app", "scope": "read write",
		"exp": now.Add(time.Hour).Unix(), "iat": now.Unix(), "jti": "1",
	}
}

// token returns a valid token with changes of its claims.
func (k rsKey) token(t testing.TB, changes map[string]any) string {
	t.Helper()
	payload, err := json.Marshal(with(rsClaims(), changes))
	if err != nil {
		t.Fatal(err)
	}
	return k.sign(t, map[string]any{"typ": "at+jwt", "kid": k.id}, payload)
}

// rsJWT returns a verifier of tokens that are signed with the keys.
func rsJWT(t testing.TB, o auth.JWTOptions, keys ...rsKey) auth.Verifier {
	t.Helper()
	routes := &rsRoutes{}
	routes.say(rsKeysURL, rsKeySet(keys...))
	o.Issuer, o.Audiences, o.JWKSURL, o.HTTPClient = rsIssuer, []string{rsResource}, rsKeysURL, routes.client()
	v, err := auth.NewJWT(&o)
	if err != nil {
		t.Fatal(err)
	}
	return v
}

// verifierFunc is a Verifier.
type verifierFunc func(ctx context.Context, token string) (*auth.Principal, error)

func (f verifierFunc) Verify(ctx context.Context, token string) (*auth.Principal, error) {
	return f(ctx, token)
}

// proof returns a valid proof for a request, with changes.
func (k rsKey) proof(t testing.TB, method, url, token string, head, changes map[string]any) string {
	t.Helper()
	hash := sha256.Sum256([]byte(token))
	claims := with(map[string]any{
		"htm": method, "htu": url, "iat": time.Now().Unix(), "jti": rand.Text(), "ath": base64.RawURLEncoding.EncodeToString(hash[:]),
	}, changes)
	payload, err := json.Marshal(claims)
	if err != nil {
		t.Fatal(err)
	}
	return k.sign(t, with(map[string]any{"typ": "dpop+jwt", "jwk": jose.JSONWebKey{Key: k.private.Public()}}, head), payload)
}

// rsGuard returns a guard with options, for tokens of one verifier.
func rsGuard(t testing.TB, v auth.Verifier, o auth.GuardOptions) *auth.Guard {
	t.Helper()
	o.Verifier = v
	if o.Resource == "" {
		o.Resource = rsResource
	}
	g, err := auth.NewGuard(&o)
	if err != nil {
		t.Fatal(err)
	}
	return g
}

// serve sends a request with headers, given as name and value in turn, and returns the response.
func serve(h http.Handler, method, target string, headers ...string) *httptest.ResponseRecorder {
	r := httptest.NewRequest(method, target, nil)
	for i := 0; i < len(headers); i += 2 {
		r.Header.Add(headers[i], headers[i+1])
	}
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	return w
}

// hello responds with the principal's ID.
var hello = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
	_, _ = io.WriteString(w, auth.PrincipalOf(r.Context()).ID())
})
