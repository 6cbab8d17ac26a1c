package login

import (
	"bytes"
	"context"
	"crypto"
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
	"net/http/cookiejar"
	"net/http/httptest"
	"net/url"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-jose/go-jose/v4"

	"mcpwire/auth"
	"mcpwire/client"
	"mcpwire/cmd/internal/proxy/gateway"
	"mcpwire/internal/proxy/bridge"
	"mcpwire/internal/rpc/relay"
	"mcpwire/jsonrpc"
	"mcpwire/mcp"
	"mcpwire/server"
	"mcpwire/streamable"
)

// eras are the revisions that clients and upstreams of the tests speak.
var eras = []mcp.Revision{mcp.LatestLegacyRevision, mcp.LatestRevision}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// An issuer is an authorization server. The value of the browser's cookie with the issuer's name is
// the user, who grants every request.
type issuer struct {
	*httptest.Server
	name string
	key  *ecdsa.PrivateKey

	mu sync.Mutex
	// codes and tokens have the issued codes and tokens. A refresh token has the prefix "refresh ".
	codes  map[string]url.Values
	tokens map[string]grant
	// registered counts registrations; logins counts the issued codes.
	registered, logins int
	// edit changes the response of the authorization endpoint.
	edit func(url.Values)
	// idToken changes the claims of ID tokens.
	idToken func(map[string]any)
	// lifetime is the lifetime of access tokens in seconds.
	lifetime int
	// noMetadata rejects requests for metadata.
	noMetadata bool
	// dpop binds tokens to keys (https://www.rfc-editor.org/rfc/rfc9449).
	dpop bool
}

type grant struct {
	user   string
	scopes []string
	// key is the thumbprint of the key that the token is bound to, or "".
	key string
}

func newIssuer(t testing.TB, name string) *issuer {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	must(t, err)
	i := &issuer{name: name, key: key, codes: map[string]url.Values{}, tokens: map[string]grant{}, lifetime: 3600}
	i.Server = httptest.NewServer(i)
	t.Cleanup(i.Close)
	return i
}

// sign returns a JWT.
func (i *issuer) sign(typ string, claims map[string]any) string {
	payload, err := json.Marshal(claims)
	if err != nil {
		panic(err)
	}
	signer, err := jose.NewSigner(jose.SigningKey{Algorithm: jose.ES256, Key: i.key}, (&jose.SignerOptions{}).WithType(jose.ContentType(typ)).WithHeader("kid", "k"))
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

// callerToken returns a token for the gateway.
func (i *issuer) callerToken(subject string, more map[string]any) string {
	claims := map[string]any{
		"iss": i.URL, "aud": testResource, "sub": subject, "client_id": "app", "jti": rand.Text(), "iat": time.Now().Unix(), "exp": time.Now().Add(time.Hour).Unix(),
	}
	maps.Copy(claims, more)
	return i.sign("at+jwt", claims)
}

const testResource = "https://gw.example.com/mcp"

// revoke revokes the access tokens of a user, and the refresh tokens if refresh is set.
func (i *issuer) revoke(user string, refresh bool) {
	i.mu.Lock()
	defer i.mu.Unlock()
	maps.DeleteFunc(i.tokens, func(token string, g grant) bool {
		return g.user == user && (refresh || !strings.HasPrefix(token, "refresh "))
	})
}

// ServeHTTP implements http.Handler.
func (i *issuer) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	i.mu.Lock()
	defer i.mu.Unlock()
	respond := func(status int, v any) {
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(status)
		_ = json.NewEncoder(w).Encode(v)
	}
	switch r.URL.Path {
	case "/.well-known/oauth-authorization-server", "/.well-known/openid-configuration":
		if i.noMetadata {
			http.NotFound(w, r)
			return
		}
		var algorithms []string
		if i.dpop {
			algorithms = []string{"ES256"}
		}
		respond(200, map[string]any{
			"dpop_signing_alg_values_supported": algorithms,
			"issuer":                            i.URL, "authorization_endpoint": i.URL + "/authorize", "token_endpoint": i.URL + "/token", "jwks_uri": i.URL + "/keys", "registration_endpoint": i.URL + "/register",
			"code_challenge_methods_supported": []string{"S256"}, "authorization_response_iss_parameter_supported": true, "token_endpoint_auth_methods_supported": []string{"none", "client_secret_basic"},
		})
	case "/keys":
		respond(200, jose.JSONWebKeySet{Keys: []jose.JSONWebKey{{Key: i.key.Public(), KeyID: "k", Algorithm: "ES256", Use: "sig"}}})
	case "/register":
		i.registered++
		respond(201, map[string]any{"client_id": fmt.Sprintf("registered-%d", i.registered), "token_endpoint_auth_method": "none"})
	case "/authorize":
		c, err := r.Cookie(i.name)
		if err != nil {
			http.Error(w, "not logged in", http.StatusUnauthorized)
			return
		}
		q, code := r.URL.Query(), rand.Text()
		if q.Get("code_challenge_method") != "S256" || q.Get("state") == "" {
			http.Error(w, "bad request", http.StatusBadRequest)
			return
		}
		i.logins++
		q.Set("user", c.Value)
		i.codes[code] = q
		out := url.Values{"code": {code}, "state": q["state"], "iss": {i.URL}}
		if i.edit != nil {
			i.edit(out)
		}
		http.Redirect(w, r, q.Get("redirect_uri")+"?"+out.Encode(), http.StatusFound)
	case "/token":
		i.token(r, respond)
	default:
		http.NotFound(w, r)
	}
}

// token serves the token endpoint.
func (i *issuer) token(r *http.Request, respond func(int, any)) {
	var g grant
	idToken, key := "", thumbprintOf(r)
	switch r.PostFormValue("grant_type") {
	case "authorization_code":
		q := i.codes[r.PostFormValue("code")]
		delete(i.codes, r.PostFormValue("code"))
		sum := sha256.Sum256([]byte(r.PostFormValue("code_verifier")))
		if q == nil || base64.RawURLEncoding.EncodeToString(sum[:]) != q.Get("code_challenge") || r.PostFormValue("redirect_uri") != q.Get("redirect_uri") ||
			q.Get("dpop_jkt") != key {
			respond(400, map[string]any{"error": "invalid_grant"})
			return
		}
		g = grant{q.Get("user"), strings.Fields(q.Get("scope")), key}
		if slices.Contains(g.scopes, "openid") {
			claims := map[string]any{"iss": i.URL, "aud": q.Get("client_id"), "sub": g.user, "nonce": q.Get("nonce"), "iat": time.Now().Unix(), "exp": time.Now().Add(time.Minute).Unix()}
			if i.idToken != nil {
				i.idToken(claims)
			}
			idToken = i.sign("JWT", claims)
		}
	case "refresh_token":
		var ok bool
		if g, ok = i.tokens["refresh "+r.PostFormValue("refresh_token")]; !ok || g.key != key {
			respond(400, map[string]any{"error": "invalid_grant"})
			return
		}
	default:
		respond(400, map[string]any{"error": "unsupported_grant_type"})
		return
	}
	kind := "Bearer"
	if key != "" {
		kind = "DPoP"
	}
	access, refresh := "access-"+g.user+"-"+rand.Text(), rand.Text()
	i.tokens[access], i.tokens["refresh "+refresh] = g, g
	respond(200, map[string]any{"access_token": access, "token_type": kind, "expires_in": i.lifetime, "refresh_token": refresh, "id_token": idToken, "scope": strings.Join(g.scopes, " ")})
}

// issued returns the number of valid tokens.
func (i *issuer) issued() int {
	i.mu.Lock()
	defer i.mu.Unlock()
	return len(i.tokens)
}

// thumbprintOf returns the thumbprint of the key in the DPoP header of a request, or "".
func thumbprintOf(r *http.Request) string {
	proof, err := jose.ParseSignedCompact(r.Header.Get("DPoP"), []jose.SignatureAlgorithm{jose.ES256})
	if err != nil {
		return ""
	}
	key := proof.Signatures[0].Header.JSONWebKey
	if _, err = proof.Verify(key); err != nil {
		return ""
	}
	sum, err := key.Thumbprint(crypto.SHA256)
	if err != nil {
		return ""
	}
	return base64.RawURLEncoding.EncodeToString(sum)
}

// Verify implements auth.Verifier for the upstream.
func (i *issuer) Verify(_ context.Context, token string) (*auth.Principal, error) {
	i.mu.Lock()
	defer i.mu.Unlock()
	g, ok := i.tokens[token]
	if !ok {
		return nil, auth.ErrInvalidToken
	}
	return &auth.Principal{Issuer: i.URL, Subject: g.user, ClientID: "gateway", Scopes: g.scopes, KeyThumbprint: g.key}, nil
}

// A recorder records all bytes of requests to a handler. Requests for the tool delete need the
// scope admin.
type recorder struct {
	h    http.Handler
	as   *issuer
	mu   sync.Mutex
	text bytes.Buffer
}

// ServeHTTP implements http.Handler.
func (r *recorder) ServeHTTP(w http.ResponseWriter, req *http.Request) {
	body, _ := io.ReadAll(req.Body)
	req.Body = io.NopCloser(bytes.NewReader(body))
	r.mu.Lock()
	fmt.Fprintf(&r.text, "%s %s\n", req.Method, req.URL)
	_ = req.Header.Write(&r.text)
	r.text.Write(body)
	r.mu.Unlock()
	if token, ok := strings.CutPrefix(req.Header.Get("Authorization"), "Bearer "); ok && strings.Contains(string(body), `"delete"`) {
		if p, err := r.as.Verify(req.Context(), token); err == nil && !p.HasScopes("admin") {
			w.Header().Set("WWW-Authenticate", `Bearer error="insufficient_scope", scope="admin"`)
			w.WriteHeader(http.StatusForbidden)
			return
		}
	}
	r.h.ServeHTTP(w, req)
}

func (r *recorder) String() string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.text.String()
}

// A world has a gateway, with an upstream that needs a login, and its authorization servers.
type world struct {
	t        testing.TB
	idp, as  *issuer
	logins   *Logins
	gateway  *gateway.Gateway
	url      string
	upstream *recorder
	up       UpstreamOptions
	options  Options
	// pages serves the pages instead of logins, unless it is nil.
	pages http.Handler

	mu      sync.Mutex
	records []string
}

// A worldOption changes the options of a world.
type worldOption func(*world, *Options, *UpstreamOptions)

// newWorld returns a world whose upstream speaks a revision.
func newWorld(t testing.TB, revision mcp.Revision, change ...worldOption) *world {
	w := &world{t: t, idp: newIssuer(t, "idp"), as: newIssuer(t, "as")}
	srv := server.MustNew("up", "1", &server.Options{Revisions: []mcp.Revision{revision}})
	t.Cleanup(func() { srv.Close(context.Background()) })
	must(t, server.AddTool(srv, "whoami", "", func(ctx context.Context, _ struct{}) (string, error) { return auth.PrincipalOf(ctx).Subject, nil }))
	must(t, server.AddTool(srv, "delete", "", func(context.Context, struct{}) (string, error) { return "deleted", nil }))
	must(t, server.AddPrompt(srv, mcp.Prompt{Name: "hello"}, func(ctx context.Context, _ struct{}) (string, error) { return auth.PrincipalOf(ctx).Subject, nil }))
	up := httptest.NewUnstartedServer(nil)
	server := "http://" + up.Listener.Addr().String() + "/mcp"
	guard, err := auth.NewGuard(&auth.GuardOptions{Resource: server, Verifier: w.as, AuthorizationServers: []string{w.as.URL}, DPoP: &auth.DPoPOptions{}})
	must(t, err)
	h, err := streamable.NewHandler(srv, &streamable.Options{Guard: guard})
	must(t, err)
	mux := http.NewServeMux()
	mux.Handle("/mcp", h)
	for _, path := range guard.MetadataPaths() {
		mux.Handle(path, guard.Metadata())
	}
	w.upstream = &recorder{h: mux, as: w.as}
	w.serve(up, w.upstream, h)

	front := httptest.NewUnstartedServer(nil)
	w.url = "http://" + front.Listener.Addr().String()
	o := &Options{URL: w.url, Identity: &Identity{Issuer: w.idp.URL, ClientID: "gateway-web"}}
	w.up = UpstreamOptions{Name: "up", Server: server}
	for _, c := range change {
		c(w, o, &w.up)
	}
	w.options = *o
	w.logins, err = New(o)
	must(t, err)
	t.Cleanup(w.logins.Close)
	w.logins.Notify(w.note, func(name string, at time.Time, of func(context.Context) bool) { w.gateway.LoginChanged(name, at, of) })
	u, err := w.logins.Upstream(w.up)
	must(t, err)
	w.front(front, o, u)
	return w
}

// front serves the gateway.
func (w *world) front(front *httptest.Server, o *Options, u *Upstream) {
	t := w.t
	transport := streamable.NewTransport(w.up.Server, &streamable.TransportOptions{HTTPClient: &http.Client{Transport: u.Transport(ownTransport(t))}})
	var err error
	w.gateway, err = gateway.New(&gateway.Options{ListWait: time.Minute, Audit: w.note, Upstreams: []gateway.Upstream{
		{Name: "up", PerPrincipal: true, Login: u, Bridge: bridge.Options{HTTP: true, Connect: func(ctx context.Context, _ io.Writer) (jsonrpc.Framer, error) { return transport.Connect(ctx) }}},
	}})
	must(t, err)
	t.Cleanup(func() { w.gateway.Close() })
	opts := &streamable.Options{}
	if o.Identity != nil {
		v, err := auth.NewJWT(&auth.JWTOptions{Issuer: w.idp.URL, Audiences: []string{testResource}, JWKSURL: w.idp.URL + "/keys", HTTPClient: &http.Client{Transport: ownTransport(t)}})
		must(t, err)
		opts.Guard, err = auth.NewGuard(&auth.GuardOptions{Resource: testResource, Verifier: v, AuthorizationServers: []string{w.idp.URL}})
		must(t, err)
	}
	h, err := streamable.NewHandler(&relay.Server{Handler: w.gateway}, opts)
	must(t, err)
	mux := http.NewServeMux()
	mux.Handle("/mcp", h)
	mux.HandleFunc(Path, func(rw http.ResponseWriter, r *http.Request) {
		if w.pages != nil {
			w.pages.ServeHTTP(rw, r)
			return
		}
		w.logins.ServeHTTP(rw, r)
	})
	w.serve(front, mux, h)
}

func (w *world) serve(s *httptest.Server, h http.Handler, stop *streamable.Handler) {
	s.Config.Handler = h
	s.Start()
	w.t.Cleanup(func() {
		ctx, cancel := context.WithCancel(context.Background())
		cancel()
		stop.Shutdown(ctx)
		s.CloseClientConnections()
		s.Close()
	})
}

func (w *world) note(r *gateway.CallRecord) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.records = append(w.records, strings.TrimSpace(fmt.Sprintf("%s %s %s %s", auth.PrincipalOf(r.Context).ID(), r.Method, r.Name, r.Outcome)))
}

// noted returns the records, without the issuer.
func (w *world) noted() []string {
	w.mu.Lock()
	defer w.mu.Unlock()
	var list []string
	for _, r := range w.records {
		list = append(list, strings.TrimPrefix(r, w.idp.URL+" "))
	}
	return list
}

func ownTransport(t testing.TB) *http.Transport {
	tr := http.DefaultTransport.(*http.Transport).Clone()
	t.Cleanup(tr.CloseIdleConnections)
	return tr
}

// dial connects a client. show opens login pages; nil means that the client cannot. notify may be
// nil.
func (w *world) dial(token string, revision mcp.Revision, show func(url string) mcp.ElicitAction, notify func(method, params string)) *client.Client {
	w.t.Helper()
	header := http.Header{}
	if token != "" {
		header.Set("Authorization", "Bearer "+token)
	}
	o := &client.Options{Revisions: []mcp.Revision{revision}}
	if show != nil {
		o.Input.ElicitModes = []mcp.ElicitMode{mcp.ElicitModeURL}
		o.Input.Elicit = func(_ context.Context, p *mcp.ElicitRequestParams) (*mcp.ElicitResult, error) {
			return &mcp.ElicitResult{Action: show(p.URL)}, nil
		}
	}
	if notify != nil {
		o.OnNotification = func(method string, params json.RawMessage) { notify(method, string(params)) }
	}
	c, err := client.Dial(w.t.Context(), streamable.NewTransport(w.url+"/mcp", &streamable.TransportOptions{Header: header, HTTPClient: &http.Client{Transport: ownTransport(w.t)}}), o)
	must(w.t, err)
	w.t.Cleanup(func() { c.Close() })
	return c
}

// A browser is the browser of a user of the gateway, who may be another user at the upstream.
type browser struct {
	t testing.TB
	*http.Client
	// visited has the URLs of all requests.
	visited []*url.URL
}

func (w *world) browser(user, upstreamUser string) *browser {
	jar, err := cookiejar.New(nil)
	must(w.t, err)
	b := &browser{t: w.t, Client: &http.Client{Jar: jar, Transport: ownTransport(w.t)}}
	b.CheckRedirect = func(req *http.Request, _ []*http.Request) error {
		b.visited = append(b.visited, req.URL)
		return nil
	}
	at, err := url.Parse(w.url)
	must(w.t, err)
	for name, value := range map[string]string{"idp": user, "as": upstreamUser} {
		if value != "" {
			jar.SetCookies(at, []*http.Cookie{{Name: name, Value: value, Path: "/"}}) // cookies do not depend on ports
		}
	}
	return b
}

// open opens a URL and returns the status and the page.
func (b *browser) open(address string) (int, string) {
	b.t.Helper()
	resp, err := b.Get(address)
	must(b.t, err)
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	must(b.t, err)
	return resp.StatusCode, string(body)
}

// login opens a login page and follows its link.
func (b *browser) login(address string) (int, string) {
	b.t.Helper()
	status, page := b.open(address)
	_, rest, ok := strings.Cut(page, `<a href="`)
	if !ok {
		return status, page
	}
	next, _, _ := strings.Cut(rest, `"`)
	return b.open(next)
}
