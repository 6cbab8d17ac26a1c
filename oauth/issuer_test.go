package oauth_test

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/go-jose/go-jose/v4"
)

// A worldIssuer is an authorization server that checks what a client must do, and fails the test if
// it does not.
type worldIssuer struct {
	w      *world
	origin string
	// meta is its metadata by path.
	meta map[string]map[string]any
	// clients has the secret of each client id; empty for public clients. Registration adds to it.
	clients map[string]string
	// key verifies assertions of clients.
	key *ecdsa.PublicKey
	// iss is the iss of authorization responses; "-" omits it.
	iss string
	// deny, if set, is the error of authorization responses.
	deny string
	// nonce, if set, is the nonce that the token endpoint requires in proofs.
	nonce string
	// expiresIn and refresh are properties of new tokens.
	expiresIn any
	refresh   bool
	// grant, if set, returns the granted scopes for the requested ones.
	grant func([]string) []string
	// tokenError, if set, is the error of the token endpoint.
	tokenError func(form url.Values) string
	// change, if set, modifies responses of the token endpoint.
	change func(map[string]any)

	mu            sync.Mutex
	n             int
	codes         map[string]url.Values
	refreshTokens map[string]url.Values
	// authorized and asked have the queries and forms of the requests.
	authorized, asked []url.Values
	registrations     []map[string]any
}

func newWorldIssuer(w *world, origin string) *worldIssuer {
	return &worldIssuer{
		w: w, origin: origin, iss: origin, expiresIn: 3600,
		clients: map[string]string{}, codes: map[string]url.Values{}, refreshTokens: map[string]url.Values{},
		meta: map[string]map[string]any{"/.well-known/oauth-authorization-server": {
			"issuer":                                         origin,
			"authorization_endpoint":                         origin + "/authorize",
			"token_endpoint":                                 origin + "/token",
			"registration_endpoint":                          origin + "/register",
			"code_challenge_methods_supported":               []string{"S256"},
			"token_endpoint_auth_methods_supported":          []string{"none"},
			"authorization_response_iss_parameter_supported": true,
		}},
	}
}

// document returns the metadata, to be changed.
func (s *worldIssuer) document() map[string]any {
	return s.meta["/.well-known/oauth-authorization-server"]
}

func (s *worldIssuer) ServeHTTP(w http.ResponseWriter, req *http.Request) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if doc := s.meta[req.URL.Path]; doc != nil {
		say(w, http.StatusOK, doc)
		return
	}
	switch req.Method + " " + req.URL.Path {
	case "POST /register":
		s.serveRegister(w, req)
	case "GET /authorize":
		s.serveAuthorize(w, req)
	case "POST /token":
		s.serveToken(w, req)
	default:
		http.NotFound(w, req)
	}
}

func (s *worldIssuer) serveRegister(w http.ResponseWriter, req *http.Request) {
	var doc map[string]any
	if err := json.NewDecoder(req.Body).Decode(&doc); err != nil {
		s.w.t.Errorf("registration: %v", err)
	}
	s.registrations = append(s.registrations, doc)
	s.n++
	id := fmt.Sprintf("client-%d-of-%s", s.n, strings.TrimPrefix(s.origin, "https://"))
	answer := maps.Clone(doc)
	answer["client_id"] = id
	s.clients[id] = ""
	if doc["token_endpoint_auth_method"] != "none" {
		s.clients[id] = "secret-of-" + id
		answer["client_secret"] = s.clients[id]
	}
	say(w, http.StatusCreated, answer)
}

func (s *worldIssuer) serveAuthorize(w http.ResponseWriter, req *http.Request) {
	q := req.URL.Query()
	s.authorized = append(s.authorized, q)
	if _, known := s.clients[q.Get("client_id")]; !known {
		s.w.t.Errorf("authorization for unknown client %q", q.Get("client_id"))
	}
	if q.Get("response_type") != "code" || q.Get("code_challenge_method") != "S256" || len(q.Get("code_challenge")) != 43 || len(q.Get("state")) < 22 {
		s.w.t.Errorf("authorization request %v", q)
	}
	back, err := url.Parse(q.Get("redirect_uri"))
	if err != nil {
		s.w.t.Errorf("redirect_uri: %v", err)
	}
	a := url.Values{"state": {q.Get("state")}}
	if s.iss != "-" {
		a.Set("iss", s.iss)
	}
	if s.deny != "" {
		a.Set("error", s.deny)
		a.Set("error_description", "because\r\nof that")
	} else {
		s.n++
		code := fmt.Sprintf("SECRET-code-%d", s.n)
		s.codes[code] = q
		a.Set("code", code)
	}
	back.RawQuery = a.Encode()
	w.Header().Set("Location", back.String())
	w.WriteHeader(http.StatusFound)
}

func (s *worldIssuer) serveToken(w http.ResponseWriter, req *http.Request) {
	if err := req.ParseForm(); err != nil {
		s.w.t.Errorf("token request: %v", err)
	}
	form := req.PostForm
	s.asked = append(s.asked, form)
	fail := func(code string) {
		say(w, http.StatusBadRequest, map[string]any{"error": code, "error_description": "no"})
	}
	if s.tokenError != nil {
		if code := s.tokenError(form); code != "" {
			fail(code)
			return
		}
	}
	jkt := ""
	if req.Header.Get("DPoP") != "" {
		var claims map[string]any
		claims, jkt = checkProof(s.w.t, req, "")
		if s.nonce != "" && claims["nonce"] != s.nonce {
			w.Header().Set("DPoP-Nonce", s.nonce)
			fail("use_dpop_nonce")
			return
		}
	}
	client, ok := s.authenticate(req)
	if !ok {
		fail("invalid_client")
		return
	}
	about, code := s.about(form, client)
	if code != "" {
		fail(code)
		return
	}
	if about.Get("dpop_jkt") != "" && about.Get("dpop_jkt") != jkt {
		s.w.t.Errorf("dpop_jkt is %s, proof is by %s", about.Get("dpop_jkt"), jkt)
	}
	say(w, http.StatusOK, s.issue(form, about, client, jkt))
}

// about returns the grant of a token request, or an error's code.
func (s *worldIssuer) about(form url.Values, client string) (url.Values, string) {
	switch form.Get("grant_type") {
	case "authorization_code":
		q := s.codes[form.Get("code")]
		delete(s.codes, form.Get("code"))
		if q == nil || q.Get("client_id") != client || q.Get("redirect_uri") != form.Get("redirect_uri") || q.Get("resource") != form.Get("resource") ||
			q.Get("code_challenge") != pkce(form.Get("code_verifier")) {
			s.w.t.Errorf("token request %v for authorization %v", form, q)
			return nil, "invalid_grant"
		}
		return q, ""
	case "refresh_token":
		q := s.refreshTokens[form.Get("refresh_token")]
		delete(s.refreshTokens, form.Get("refresh_token"))
		if q == nil {
			return nil, "invalid_grant"
		}
		return q, ""
	}
	return form, ""
}

func (s *worldIssuer) issue(form, about url.Values, client, jkt string) map[string]any {
	scopes := strings.Fields(about.Get("scope"))
	if s.grant != nil {
		scopes = s.grant(scopes)
	}
	s.n++
	access := fmt.Sprintf("SECRET-access-%d-of-%s", s.n, strings.TrimPrefix(s.origin, "https://"))
	s.w.mu.Lock()
	s.w.tokens[access] = worldToken{s.origin, form.Get("resource"), scopes, jkt}
	s.w.mu.Unlock()
	answer := map[string]any{"access_token": access, "token_type": "Bearer", "expires_in": s.expiresIn}
	if jkt != "" {
		answer["token_type"] = "DPoP"
	}
	if len(scopes) > 0 {
		answer["scope"] = strings.Join(scopes, " ")
	}
	if s.refresh {
		refresh := fmt.Sprintf("SECRET-refresh-%d", s.n)
		s.refreshTokens[refresh] = about
		answer["refresh_token"] = refresh
	}
	if s.change != nil {
		s.change(answer)
	}
	return answer
}

// authenticate returns the client of a token request.
func (s *worldIssuer) authenticate(req *http.Request) (string, bool) {
	id, secret, basic := req.BasicAuth()
	methods, _ := s.document()["token_endpoint_auth_methods_supported"].([]string)
	used := "none"
	switch {
	case basic:
		used = "client_secret_basic"
		id, _ = url.QueryUnescape(id)
		secret, _ = url.QueryUnescape(secret)
	case req.PostForm.Get("client_assertion") != "":
		used = "private_key_jwt"
		id = s.checkAssertion(req.PostForm)
		secret = s.clients[id]
	default:
		id, secret = req.PostForm.Get("client_id"), req.PostForm.Get("client_secret")
		if secret != "" {
			used = "client_secret_post"
		}
	}
	if methods != nil && !slices.Contains(methods, used) {
		s.w.t.Errorf("client authenticated by %s, supported are %v", used, methods)
	}
	want, known := s.clients[id]
	return id, known && secret == want
}

// checkAssertion returns the client that an assertion is by.
func (s *worldIssuer) checkAssertion(form url.Values) string {
	sig, err := jose.ParseSignedCompact(form.Get("client_assertion"), []jose.SignatureAlgorithm{jose.ES256})
	if err != nil {
		s.w.t.Errorf("assertion: %v", err)
		return ""
	}
	payload, err := sig.Verify(s.key)
	if err != nil {
		s.w.t.Errorf("assertion: %v", err)
		return ""
	}
	var c struct{ Iss, Sub, Aud, Jti string }
	if err := json.Unmarshal(payload, &c); err != nil || c.Iss != c.Sub || c.Aud != s.origin || c.Jti == "" {
		s.w.t.Errorf("assertion %s: %v", payload, err)
	}
	return c.Iss
}

// checkProof checks a proof of possession and returns its claims and the thumbprint of its key.
func checkProof(t *testing.T, req *http.Request, token string) (map[string]any, string) {
	t.Helper()
	sig, err := jose.ParseSignedCompact(req.Header.Get("DPoP"), []jose.SignatureAlgorithm{jose.ES256})
	if err != nil {
		t.Errorf("proof: %v", err)
		return nil, ""
	}
	key := sig.Signatures[0].Header.JSONWebKey
	payload, err := sig.Verify(key)
	if err != nil || !key.IsPublic() || sig.Signatures[0].Header.ExtraHeaders["typ"] != "dpop+jwt" {
		t.Errorf("proof: %v, header %v", err, sig.Signatures[0].Header)
	}
	var claims map[string]any
	if err := json.Unmarshal(payload, &claims); err != nil {
		t.Errorf("proof: %v", err)
	}
	bare := *req.URL
	bare.RawQuery = ""
	var ath any
	if token != "" {
		sum := sha256.Sum256([]byte(token))
		ath = base64.RawURLEncoding.EncodeToString(sum[:])
	}
	if claims["htm"] != req.Method || claims["htu"] != bare.String() || claims["ath"] != ath || claims["jti"] == "" || claims["iat"] == nil {
		t.Errorf("proof has %v for %s %s", claims, req.Method, &bare)
	}
	print, err := key.Thumbprint(crypto.SHA256)
	if err != nil {
		t.Error(err)
	}
	return claims, base64.RawURLEncoding.EncodeToString(print)
}
