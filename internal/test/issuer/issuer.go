// Package issuer has an OAuth 2.1 authorization server for tests. It checks what a client must do.
package issuer

import (
	"bytes"
	"cmp"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"net/url"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-jose/go-jose/v4"

	"mcpwire/auth"
)

const (
	metadataPath    = "/.well-known/oauth-authorization-server"
	typeAccessToken = "urn:ietf:params:oauth:token-type:access_token"
	grantExchange   = "urn:ietf:params:oauth:grant-type:token-exchange"
)

// An Issuer is an authorization server whose users grant every request. Tests change its fields
// before they send requests, or hold Mu.
type Issuer struct {
	// URL is the issuer identifier, without a path.
	URL string
	// Errorf, if set, reports requests that are wrong, in addition to the error response.
	Errorf func(format string, args ...any)
	// Metadata has the metadata documents by path.
	Metadata map[string]map[string]any
	// Clients has the secret of each client id; empty for public clients. Registration adds to it.
	Clients map[string]string
	// ClientKey verifies assertions of clients.
	ClientKey *ecdsa.PublicKey
	// User, if set, returns the user of a browser, or "" if nobody is logged in.
	User func(*http.Request) string
	// Iss is the iss of authorization responses; "-" omits it.
	Iss string
	// Deny, if set, is the error of authorization responses.
	Deny string
	// Nonce, if set, is the nonce that the token endpoint requires in proofs.
	Nonce string
	// ExpiresIn is the lifetime of access tokens in seconds. Refresh adds refresh tokens.
	ExpiresIn any
	Refresh   bool
	// JWT makes access tokens JWTs for the requested audience, and exchanges such tokens.
	JWT bool
	// Grant, if set, returns the granted scopes for the requested ones.
	Grant func([]string) []string
	// TokenError, if set, returns the error of a token request, or "".
	TokenError func(form url.Values) string
	// EditToken and EditIDToken, if set, modify responses of the token endpoint and the claims of
	// ID tokens.
	EditToken, EditIDToken func(map[string]any)

	key *ecdsa.PrivateKey

	// Mu guards the following fields.
	Mu sync.Mutex
	// Authorized and Asked have the queries of authorization requests and the forms of token
	// requests.
	Authorized, Asked []url.Values
	Registrations     []map[string]any
	// Tokens has the valid access tokens, except JWTs.
	Tokens map[string]Token

	codes, refreshTokens map[string]grant
	n                    int
}

// A Token has the properties of an access token.
type Token struct {
	User, Client, Resource string
	Scopes                 []string
	// Key is the thumbprint of the key that the token is bound to, or "".
	Key string
}

// A grant is what a user has granted. It has the query of the authorization request.
type grant struct {
	url.Values
	user, key string
}

// New returns an authorization server with an identifier.
func New(identifier string) *Issuer {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		panic(err)
	}
	i := &Issuer{
		URL: identifier, Iss: identifier, ExpiresIn: 3600, key: key,
		Clients: map[string]string{}, Tokens: map[string]Token{}, codes: map[string]grant{}, refreshTokens: map[string]grant{},
	}
	i.Metadata = map[string]map[string]any{metadataPath: {
		"issuer":                                identifier,
		"authorization_endpoint":                identifier + "/authorize",
		"token_endpoint":                        identifier + "/token",
		"registration_endpoint":                 identifier + "/register",
		"jwks_uri":                              identifier + "/keys",
		"code_challenge_methods_supported":      []string{"S256"},
		"token_endpoint_auth_methods_supported": []string{"none"},
		"authorization_response_iss_parameter_supported": true,
	}}
	return i
}

// Start returns an authorization server that serves on a port of this machine until the test ends.
func Start(t testing.TB) *Issuer {
	s := httptest.NewUnstartedServer(nil)
	i := New("http://" + s.Listener.Addr().String())
	s.Config.Handler = i
	s.Start()
	t.Cleanup(s.Close)
	return i
}

// Document returns the metadata, to be changed.
func (i *Issuer) Document() map[string]any { return i.Metadata[metadataPath] }

// AuthMethods sets how clients may authenticate.
func (i *Issuer) AuthMethods(methods ...string) {
	i.Document()["token_endpoint_auth_methods_supported"] = methods
}

// RoundTrip implements http.RoundTripper, without a network.
func (i *Issuer) RoundTrip(req *http.Request) (*http.Response, error) {
	if req.URL.Scheme+"://"+req.URL.Host != i.URL {
		return nil, fmt.Errorf("unexpected request to %s", req.URL)
	}
	return RoundTrip(i, req)
}

// RoundTrip sends a request to a handler without a network.
func RoundTrip(h http.Handler, req *http.Request) (*http.Response, error) {
	if err := req.Context().Err(); err != nil {
		return nil, err
	}
	in := req.Clone(req.Context())
	in.RequestURI = req.URL.RequestURI()
	in.Body = http.NoBody
	if req.Body != nil {
		body, err := io.ReadAll(req.Body)
		if err != nil {
			return nil, err
		}
		req.Body.Close()
		in.Body = io.NopCloser(bytes.NewReader(body))
	}
	out := httptest.NewRecorder()
	h.ServeHTTP(out, in)
	resp := out.Result()
	resp.Request = req
	return resp, nil
}

// Sign returns a JWT with a type and claims.
func (i *Issuer) Sign(typ string, claims map[string]any) string {
	opts := (&jose.SignerOptions{}).WithType(jose.ContentType(typ)).WithHeader("kid", "k")
	signer, err := jose.NewSigner(jose.SigningKey{Algorithm: jose.ES256, Key: i.key}, opts)
	if err != nil {
		panic(err)
	}
	payload, err := json.Marshal(claims)
	if err != nil {
		panic(err)
	}
	signed, err := signer.Sign(payload)
	if err != nil {
		panic(err)
	}
	text, err := signed.CompactSerialize()
	if err != nil {
		panic(err)
	}
	return text
}

// Token returns a JWT that is an access token of a subject for an audience, with more claims.
func (i *Issuer) Token(subject, audience string, more map[string]any) string {
	now := time.Now()
	claims := map[string]any{
		"iss": i.URL, "aud": audience, "sub": subject, "client_id": "app", "jti": rand.Text(),
		"iat": now.Unix(), "exp": now.Add(time.Hour).Unix(),
	}
	maps.Copy(claims, more)
	return i.Sign("at+jwt", claims)
}

// Verifier returns a verifier of JWTs for an audience.
func (i *Issuer) Verifier(t testing.TB, audience string) auth.Verifier {
	t.Helper()
	v, err := auth.NewJWT(&auth.JWTOptions{Issuer: i.URL, Audiences: []string{audience}, JWKSURL: i.URL + "/keys", HTTPClient: &http.Client{Transport: i}})
	if err != nil {
		t.Fatal(err)
	}
	return v
}

// Verify implements auth.Verifier for tokens that are no JWTs.
func (i *Issuer) Verify(_ context.Context, token string) (*auth.Principal, error) {
	i.Mu.Lock()
	defer i.Mu.Unlock()
	got, ok := i.Tokens[token]
	if !ok {
		return nil, auth.ErrInvalidToken
	}
	return &auth.Principal{Issuer: i.URL, Subject: got.User, ClientID: got.Client, Scopes: got.Scopes, KeyThumbprint: got.Key}, nil
}

// Revoke revokes the access tokens of a user, and the refresh tokens if refresh is set.
func (i *Issuer) Revoke(user string, refresh bool) {
	i.Mu.Lock()
	defer i.Mu.Unlock()
	maps.DeleteFunc(i.Tokens, func(_ string, t Token) bool { return t.User == user })
	maps.DeleteFunc(i.refreshTokens, func(_ string, g grant) bool { return refresh && g.user == user })
}

func (i *Issuer) errorf(format string, args ...any) {
	if i.Errorf != nil {
		i.Errorf(format, args...)
	}
}

// Respond writes a response with JSON.
func Respond(w http.ResponseWriter, status int, v any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(v)
}

// ServeHTTP implements http.Handler.
func (i *Issuer) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	i.Mu.Lock()
	defer i.Mu.Unlock()
	if doc := i.Metadata[r.URL.Path]; doc != nil {
		Respond(w, http.StatusOK, doc)
		return
	}
	switch r.Method + " " + r.URL.Path {
	case "GET /keys":
		Respond(w, http.StatusOK, jose.JSONWebKeySet{Keys: []jose.JSONWebKey{{Key: i.key.Public(), KeyID: "k", Algorithm: "ES256", Use: "sig"}}})
	case "POST /register":
		i.serveRegister(w, r)
	case "GET /authorize":
		i.serveAuthorize(w, r)
	case "POST /token":
		i.serveToken(w, r)
	default:
		http.NotFound(w, r)
	}
}

func (i *Issuer) serveRegister(w http.ResponseWriter, r *http.Request) {
	var doc map[string]any
	if err := json.NewDecoder(r.Body).Decode(&doc); err != nil {
		i.errorf("registration: %v", err)
		Respond(w, http.StatusBadRequest, map[string]any{"error": "invalid_client_metadata"})
		return
	}
	i.Registrations = append(i.Registrations, doc)
	id := i.next("client")
	answer := maps.Clone(doc)
	answer["client_id"] = id
	i.Clients[id] = ""
	if doc["token_endpoint_auth_method"] != "none" {
		i.Clients[id] = "secret-of-" + id
		answer["client_secret"] = i.Clients[id]
	}
	Respond(w, http.StatusCreated, answer)
}

// next returns a new name of a kind, which is a valid token.
func (i *Issuer) next(kind string) string {
	i.n++
	_, host, _ := strings.Cut(i.URL, "://")
	return fmt.Sprintf("%s-%d-of-%s", kind, i.n, strings.ReplaceAll(host, ":", "-"))
}

func (i *Issuer) serveAuthorize(w http.ResponseWriter, r *http.Request) {
	q := r.URL.Query()
	user := "user"
	if i.User != nil {
		if user = i.User(r); user == "" {
			http.Error(w, "not logged in", http.StatusUnauthorized)
			return
		}
	}
	back, err := url.Parse(q.Get("redirect_uri"))
	_, known := i.Clients[q.Get("client_id")]
	if err != nil || !known || q.Get("response_type") != "code" || q.Get("code_challenge_method") != "S256" || len(q.Get("code_challenge")) != 43 || len(q.Get("state")) < 22 {
		i.errorf("authorization request %v, client known: %t", q, known)
		http.Error(w, "bad request", http.StatusBadRequest)
		return
	}
	i.Authorized = append(i.Authorized, q)
	a := url.Values{"state": q["state"]}
	if i.Iss != "-" {
		a.Set("iss", i.Iss)
	}
	if i.Deny != "" {
		a.Set("error", i.Deny)
		a.Set("error_description", "because\r\nof that")
	} else {
		code := i.next("SECRET-code")
		i.codes[code] = grant{q, user, q.Get("dpop_jkt")}
		a.Set("code", code)
	}
	back.RawQuery = a.Encode()
	w.Header().Set("Location", back.String())
	w.WriteHeader(http.StatusFound)
}

func (i *Issuer) serveToken(w http.ResponseWriter, r *http.Request) {
	if err := r.ParseForm(); err != nil {
		i.errorf("token request: %v", err)
	}
	form := r.PostForm
	i.Asked = append(i.Asked, form)
	fail := func(code string) {
		Respond(w, http.StatusBadRequest, map[string]any{"error": code, "error_description": "no"})
	}
	if i.TokenError != nil {
		if code := i.TokenError(form); code != "" {
			fail(code)
			return
		}
	}
	key := ""
	if r.Header.Get("DPoP") != "" {
		claims, thumbprint, err := CheckProof(r, i.URL+"/token", "")
		if err != nil {
			i.errorf("token request: %v", err)
			fail("invalid_dpop_proof")
			return
		}
		if i.Nonce != "" && claims["nonce"] != i.Nonce {
			w.Header().Set("DPoP-Nonce", i.Nonce)
			fail("use_dpop_nonce")
			return
		}
		key = thumbprint
	}
	client, ok := i.authenticate(r)
	if !ok {
		fail("invalid_client")
		return
	}
	g, code := i.granted(form, client, key)
	if code != "" {
		fail(code)
		return
	}
	Respond(w, http.StatusOK, i.issue(form, g, client, key))
}

// granted returns what a token request gets, or an error's code. It uses up codes and refresh
// tokens.
func (i *Issuer) granted(form url.Values, client, key string) (grant, string) {
	switch form.Get("grant_type") {
	case "authorization_code":
		g, ok := i.codes[form.Get("code")]
		delete(i.codes, form.Get("code"))
		sum := sha256.Sum256([]byte(form.Get("code_verifier")))
		if !ok || g.Get("client_id") != client || g.Get("redirect_uri") != form.Get("redirect_uri") || g.Get("resource") != form.Get("resource") ||
			g.Get("code_challenge") != base64.RawURLEncoding.EncodeToString(sum[:]) || g.key != "" && g.key != key {
			i.errorf("token request %v with key %q for authorization %v", form, key, g)
			return g, "invalid_grant"
		}
		return g, ""
	case "refresh_token":
		g, ok := i.refreshTokens[form.Get("refresh_token")]
		delete(i.refreshTokens, form.Get("refresh_token"))
		if !ok || g.key != key {
			return g, "invalid_grant"
		}
		return g, ""
	case grantExchange:
		if !i.JWT {
			break
		}
		var claims struct{ Sub, Scope string }
		signed, err := jose.ParseSignedCompact(form.Get("subject_token"), []jose.SignatureAlgorithm{jose.ES256})
		if err != nil {
			return grant{}, "invalid_request"
		}
		payload, err := signed.Verify(i.key.Public())
		if err != nil || json.Unmarshal(payload, &claims) != nil {
			return grant{}, "invalid_request"
		}
		return grant{Values: url.Values{"scope": {claims.Scope}}, user: claims.Sub}, ""
	}
	return grant{Values: form}, ""
}

// issue returns the response to a token request.
func (i *Issuer) issue(form url.Values, g grant, client, key string) map[string]any {
	scopes := strings.Fields(g.Get("scope"))
	if i.Grant != nil {
		scopes = i.Grant(scopes)
	}
	scope := strings.Join(scopes, " ")
	access := ""
	if i.JWT {
		audience := cmp.Or(form.Get("audience"), form.Get("resource"))
		access = i.Token(g.user, audience, map[string]any{"client_id": client, "scope": scope})
	} else {
		access = i.next(strings.TrimSuffix("SECRET-access-"+g.user, "-"))
		i.Tokens[access] = Token{g.user, client, form.Get("resource"), scopes, key}
	}
	answer := map[string]any{"access_token": access, "token_type": "Bearer", "expires_in": i.ExpiresIn}
	if key != "" {
		answer["token_type"] = "DPoP"
	}
	if scope != "" {
		answer["scope"] = scope
	}
	if i.Refresh {
		refresh := i.next("SECRET-refresh")
		i.refreshTokens[refresh] = grant{g.Values, g.user, key}
		answer["refresh_token"] = refresh
	}
	switch form.Get("grant_type") {
	case "authorization_code":
		if slices.Contains(scopes, "openid") {
			now := time.Now()
			claims := map[string]any{"iss": i.URL, "aud": client, "sub": g.user, "nonce": g.Get("nonce"), "iat": now.Unix(), "exp": now.Add(time.Minute).Unix()}
			if i.EditIDToken != nil {
				i.EditIDToken(claims)
			}
			answer["id_token"] = i.Sign("JWT", claims)
		}
	case grantExchange:
		answer["issued_token_type"] = typeAccessToken
	}
	if i.EditToken != nil {
		i.EditToken(answer)
	}
	return answer
}
