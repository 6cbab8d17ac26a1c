package auth

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net/http"
	"net/netip"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"
)

// GuardOptions say who gets past a [Guard]. Verifier is required, Resource for a guard with AuthorizationServers or DPoP.
type GuardOptions struct {
	// Resource is the public URL of what is guarded, as clients know it. It is made canonical ([CanonicalResource]) and is what tokens should be
	// issued for; give the verifiers the same.
	Resource string
	// Verifier judges tokens.
	Verifier Verifier
	// AuthorizationServers are the issuers that clients can get tokens from, as they are named in their own metadata. If there are none, as with fixed tokens,
	// there is no metadata either.
	AuthorizationServers []string
	// ScopesSupported are the scopes that clients ask for if nothing else tells them what to ask for. Keep them few: see
	// https://modelcontextprotocol.io/specification/2026-07-28/basic/authorization#scope-selection-strategy. offline_access is refused.
	ScopesSupported []string
	// RequiredScopes are those without which no request is let through. Challenges name them.
	RequiredScopes []string
	// ScopeIncludes says which scopes are included in another: {"admin": {"write"}, "write": {"read"}} lets admin do everything.
	ScopeIncludes map[string][]string
	// DPoP turns on proofs of possession; nil means that tokens are bearer tokens, and those that are bound to a key are refused.
	DPoP *DPoPOptions
	// FailureLimit bounds failures; nil means the defaults.
	FailureLimit *FailureLimit
	// ClientAddr returns where a request comes from, for FailureLimit. Behind a proxy it has to get that from what the proxy says. An invalid
	// address is not limited. Nil means http.Request.RemoteAddr, unless that is of this machine: then it is probably a proxy's, and not limited.
	ClientAddr func(*http.Request) netip.Addr
	// PublicURL returns the URL that the client sent a request to, for DPoP. Nil means the scheme and host of Resource, with the path of the request. It is
	// needed where a proxy or a handler in front changes the path. It must not believe the Host header.
	PublicURL func(*http.Request) string
	// MetadataURL is where clients find the metadata, if it is not at the well-known place below the resource's origin.
	MetadataURL string
	// Name and Documentation are resource_name and resource_documentation of the metadata.
	Name, Documentation string
	// Realm is named in challenges, if there is one.
	Realm string
	// Logger gets refusals at level debug, and verifiers that are unavailable at level warn; nil means nobody. Neither has anything of a token.
	Logger *slog.Logger
}

// A Guard lets requests through that have a good token, and answers the others. It may be used by many goroutines at once, has none of its own and need not be
// closed.
type Guard struct {
	verifier      Verifier
	resource      string // canonical; may be empty
	metadataURL   string // empty without metadata
	metadataPaths []string
	metadata      []byte
	required      []string
	hierarchy     scopeHierarchy
	dpop          *dpopChecker // nil if off
	failures      *failureLimiter
	clientAddr    func(*http.Request) netip.Addr
	publicURL     func(*http.Request) string
	realm         string
	log           *slog.Logger
}

// NewGuard returns a guard. Its error says which option is wrong.
func NewGuard(o *GuardOptions) (*Guard, error) {
	if o == nil || o.Verifier == nil {
		return nil, errors.New("auth: a guard needs a verifier")
	}
	g := &Guard{
		verifier: o.Verifier, required: unique(o.RequiredScopes), failures: newFailureLimiter(o.FailureLimit),
		clientAddr: o.ClientAddr, publicURL: o.PublicURL, realm: o.Realm, log: o.Logger,
	}
	if g.clientAddr == nil {
		g.clientAddr = remoteAddr
	}
	if g.log == nil {
		g.log = slog.New(slog.DiscardHandler)
	}
	var err error
	if g.hierarchy, err = newScopeHierarchy(o.ScopeIncludes); err != nil {
		return nil, fmt.Errorf("auth: %w", err)
	}
	if err := checkGuardTexts(o); err != nil {
		return nil, err
	}
	if o.Resource != "" {
		if g.resource, err = CanonicalResource(o.Resource); err != nil {
			return nil, err
		}
	}
	if o.DPoP != nil {
		if g.resource == "" && g.publicURL == nil {
			return nil, errors.New("auth: DPoP needs to know the URL of the resource")
		}
		if g.dpop, err = newDPoPChecker(o.DPoP); err != nil {
			return nil, fmt.Errorf("auth: DPoP: %w", err)
		}
	}
	if g.publicURL == nil {
		origin := originURL(g.resource)
		g.publicURL = func(r *http.Request) string { return origin + r.URL.EscapedPath() }
	}
	if err := g.buildMetadata(o); err != nil {
		return nil, err
	}
	return g, nil
}

func checkGuardTexts(o *GuardOptions) error {
	if err := checkScopes(slices.Concat(o.RequiredScopes, o.ScopesSupported)); err != nil {
		return fmt.Errorf("auth: %w", err)
	}
	if slices.Contains(o.RequiredScopes, "offline_access") || slices.Contains(o.ScopesSupported, "offline_access") {
		return errors.New("auth: offline_access is between clients and authorization servers, no resource asks for it")
	}
	if strings.ContainsFunc(o.Realm, func(r rune) bool { return r < ' ' || r > '~' || r == '"' || r == '\\' }) {
		return errors.New("auth: the realm has characters that do not fit into a header")
	}
	return nil
}

// CanonicalResource returns the canonical form of a server's URL, which its tokens are issued for: scheme and host in lower case, without a default port,
// and without a slash at the end. It is an error if the URL has a user, a query, a fragment or dots as segments of its path, or does not use https, but for
// http of this machine's own.
// See https://modelcontextprotocol.io/specification/2026-07-28/basic/authorization#canonical-server-uri.
func CanonicalResource(address string) (string, error) {
	u, err := checkEndpoint(address)
	if err != nil {
		return "", fmt.Errorf("auth: resource: %w", err)
	}
	if u.RawQuery != "" || u.ForceQuery {
		return "", errors.New("auth: resource: the URL has a query")
	}
	path := u.EscapedPath()
	for segment := range strings.SplitSeq(u.Path, "/") {
		if segment == "." || segment == ".." {
			return "", errors.New("auth: resource: the URL's path has dots as a segment")
		}
	}
	return canonicalOrigin(u) + strings.TrimRight(path, "/"), nil
}

// canonicalOrigin returns scheme, host and port of a URL, without a default port.
func canonicalOrigin(u *url.URL) string {
	scheme, host := strings.ToLower(u.Scheme), strings.ToLower(u.Host)
	switch scheme {
	case "https":
		host = strings.TrimSuffix(host, ":443")
	case "http":
		host = strings.TrimSuffix(host, ":80")
	}
	return scheme + "://" + strings.TrimSuffix(host, ":")
}

// originURL returns the origin of a canonical URL.
func originURL(canonical string) string {
	scheme, rest, _ := strings.Cut(canonical, "://")
	host, _, _ := strings.Cut(rest, "/")
	return scheme + "://" + host
}

// remoteAddr returns the address at the other end of the connection; none if that is on this machine.
func remoteAddr(r *http.Request) netip.Addr {
	ap, err := netip.ParseAddrPort(r.RemoteAddr)
	if addr := ap.Addr().Unmap(); err == nil && !addr.IsLoopback() {
		return addr
	}
	return netip.Addr{}
}

// Protect returns a handler that passes requests with a good token on to next. The others are answered here:
//
//   - 401 without a token, and with one that is not valid, or whose proof is not,
//   - 400 for what is malformed: several Authorization headers, a token in the query, a text that cannot be a token,
//   - 403 if one of [GuardOptions.RequiredScopes] is missing,
//   - 429 after too many failures, see [FailureLimit],
//   - 503 if the token cannot be verified at the moment.
//
// Each request is judged by itself; there are no sessions. The context of next's request has the principal, for [PrincipalOf], [Require] and [Deny]. Its
// headers have neither the token nor the proof, so that they cannot be passed on to anyone else.
//
// Preflight requests of browsers have no token and get a 401: what answers them has to be in front.
// See https://modelcontextprotocol.io/specification/2026-07-28/basic/authorization#token-requirements.
func (g *Guard) Protect(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		adm, rejected := g.admit(r)
		if rejected != nil {
			g.reject(w, r, rejected)
			return
		}
		if adm.nonce != "" {
			w.Header().Set("DPoP-Nonce", adm.nonce)
		}
		ctx := WithPrincipal(r.Context(), adm.principal)
		ctx = context.WithValue(ctx, guardKey{}, passedGuard{g, adm.scheme})
		r = r.WithContext(ctx) // a copy
		r.Header = maps.Clone(r.Header)
		r.Header.Del("Authorization")
		r.Header.Del("DPoP")
		next.ServeHTTP(w, r)
	})
}

// admission is what is known of a request that is let through.
type admission struct {
	principal *Principal
	scheme    scheme
	nonce     string // a new one for the client; may be empty
}

// admit decides on a request.
func (g *Guard) admit(r *http.Request) (admission, *rejection) {
	s, token, rejected := g.credentials(r)
	if rejected != nil {
		return admission{}, rejected
	}
	digest, addr := sha256.Sum256([]byte(token)), g.clientAddr(r)
	switch wait, bad := g.failures.wait(addr, digest); {
	case bad:
		return admission{}, &rejection{status: http.StatusUnauthorized, scheme: s, code: "invalid_token", err: errTooManyFailures}
	case wait > 0:
		return admission{}, &rejection{status: http.StatusTooManyRequests, retryAfter: wait, err: errTooManyFailures}
	}
	p, err := g.verify(r.Context(), token)
	if err == nil && s == schemeBearer && p.KeyThumbprint != "" {
		err = invalid("it is bound to a key, but came without a proof")
	} else if err == nil && s == schemeDPoP && p.KeyThumbprint == "" {
		err = invalid("it came with a proof, but is not bound to a key")
	}
	if err != nil {
		if !errors.Is(err, ErrInvalidToken) {
			return admission{}, &rejection{status: http.StatusServiceUnavailable, retryAfter: retryUnavailable, err: err}
		}
		// What is wrong with how a token was presented says nothing of the token.
		g.failures.addFailure(addr, digest, p == nil)
		return admission{}, &rejection{status: http.StatusUnauthorized, scheme: s, code: "invalid_token", err: err}
	}
	adm := admission{principal: p, scheme: s}
	if s == schemeDPoP {
		if adm.nonce, rejected = g.checkProof(r, token, p.KeyThumbprint); rejected != nil {
			if rejected.code == "invalid_dpop_proof" {
				g.failures.addFailure(addr, digest, false)
			}
			return admission{}, rejected
		}
	}
	g.failures.addSuccess(digest)
	if missing := p.missing(g.required); len(missing) > 0 {
		err := &ScopeError{Scopes: g.required, Missing: missing}
		return admission{}, &rejection{status: http.StatusForbidden, scheme: s, code: "insufficient_scope", nonce: adm.nonce, err: err}
	}
	return adm, nil
}

var errTooManyFailures = errors.New("too many failures")

// verify asks the verifier, and does not rely on it for what can be seen from the principal.
func (g *Guard) verify(ctx context.Context, token string) (*Principal, error) {
	found, err := g.verifier.Verify(ctx, token)
	switch {
	case err != nil:
		return nil, err
	case found == nil:
		return nil, errNoPrincipal
	case !found.Expires.IsZero() && !time.Now().Before(found.Expires):
		return nil, invalid("it has expired")
	}
	p := *found
	p.hierarchy = g.hierarchy
	return &p, nil
}

// checkProof returns a new nonce if the client should get one.
func (g *Guard) checkProof(r *http.Request, token, thumbprint string) (nonce string, _ *rejection) {
	stale, err := g.dpop.check(r, g.publicURL(r), token, thumbprint)
	if g.dpop.nonces != nil && (stale || errors.Is(err, errNonce)) {
		nonce = g.dpop.nonces.current(time.Now())
	}
	switch {
	case err == nil:
		return nonce, nil
	case errors.Is(err, errNonce):
		return "", &rejection{status: http.StatusUnauthorized, scheme: schemeDPoP, code: "use_dpop_nonce", nonce: nonce, err: err}
	case errors.Is(err, ErrReplayQuota):
		return "", &rejection{status: http.StatusTooManyRequests, retryAfter: retryUnavailable, err: err}
	case errors.Is(err, ErrUnavailable):
		return "", &rejection{status: http.StatusServiceUnavailable, retryAfter: retryUnavailable, err: err}
	}
	return "", &rejection{status: http.StatusUnauthorized, scheme: schemeDPoP, code: "invalid_dpop_proof", nonce: nonce, err: err}
}

// credentials returns the token of a request, whose text is checked, and how it was presented.
func (g *Guard) credentials(r *http.Request) (scheme, string, *rejection) {
	malformed := func(err error) (scheme, string, *rejection) {
		return "", "", &rejection{status: http.StatusBadRequest, code: "invalid_request", err: err}
	}
	if r.URL.RawQuery != "" {
		query, err := url.ParseQuery(r.URL.RawQuery)
		if query.Has("access_token") {
			return malformed(errors.New("a token in the query"))
		}
		if err != nil && strings.Contains(r.URL.RawQuery, "access_token") {
			return malformed(errors.New("a query that cannot be parsed"))
		}
	}
	headers := r.Header.Values("Authorization")
	if len(headers) == 0 {
		return "", "", &rejection{status: http.StatusUnauthorized, err: ErrUnauthenticated}
	}
	if len(headers) > 1 {
		return malformed(errors.New("several Authorization headers"))
	}
	s, token, err := parseAuthorization(headers[0])
	if err != nil {
		return malformed(err)
	}
	offered := s == schemeBearer && (g.dpop == nil || !g.dpop.required) || s == schemeDPoP && g.dpop != nil
	if !offered {
		return "", "", &rejection{status: http.StatusUnauthorized, err: errors.New("another scheme of authorization")}
	}
	return s, token, nil
}

// parseAuthorization reads an Authorization header. The token is "" if the scheme is none of ours.
// See https://www.rfc-editor.org/rfc/rfc6750#section-2.1 and https://www.rfc-editor.org/rfc/rfc9449#section-7.1.
func parseAuthorization(header string) (scheme, string, error) {
	name, token, _ := strings.Cut(header, " ")
	known := []scheme{schemeBearer, schemeDPoP}
	i := slices.IndexFunc(known, func(s scheme) bool { return strings.EqualFold(string(s), name) })
	if i < 0 {
		return "", "", nil
	}
	token = strings.TrimLeft(token, " ")
	if len(token) > maxToken {
		return "", "", fmt.Errorf("a token of more than %d bytes", maxToken)
	}
	if !validToken(token) {
		return "", "", errors.New("a text that cannot be a token")
	}
	return known[i], token, nil
}

// validToken tells whether s is a b64token.
func validToken(s string) bool {
	body := strings.TrimRight(s, "=")
	for i := range len(body) {
		c := body[i]
		if (c < '0' || c > '9') && (c < 'A' || c > 'Z') && (c < 'a' || c > 'z') && strings.IndexByte("-._~+/", c) < 0 {
			return false
		}
	}
	return body != ""
}

// A scheme is one of the ways to present a token.
type scheme string

const (
	schemeBearer scheme = "Bearer"
	schemeDPoP   scheme = "DPoP"
)

// A refusal is an answer to a request that is not let through.
type rejection struct {
	status     int
	scheme     scheme   // that the request used; empty if none
	code       string   // of https://www.rfc-editor.org/rfc/rfc6750#section-3.1 or https://www.rfc-editor.org/rfc/rfc9449#section-12.2; may be empty
	scopes     []string // that are needed
	retryAfter time.Duration
	nonce      string // may be empty
	err        error  // what was wrong, for the log
}

var errorDescriptions = map[string]string{
	"invalid_request":    "The request is malformed.",
	"invalid_token":      "The token is not valid here.",
	"insufficient_scope": "The operation needs more scopes.",
	"invalid_dpop_proof": "The DPoP proof is not valid.",
	"use_dpop_nonce":     "The DPoP proof needs another nonce.",
}

type guardKey struct{}

// passedGuard is what Deny has to know of how a request got past a guard.
type passedGuard struct {
	guard  *Guard
	scheme scheme
}

func passedGuardOf(ctx context.Context) passedGuard {
	p, _ := ctx.Value(guardKey{}).(passedGuard)
	return p
}

// Deny answers a request that is authenticated but must not be served because of err: with 403 and a challenge that names all scopes of the operation if
// err is, or wraps, a [*ScopeError]; with 401 if it is [ErrUnauthenticated] or [ErrInvalidToken]; with 503 if it is [ErrUnavailable]; else with 403. Nothing
// of the error's text is sent. Nothing must have been written to w. The challenge is that of the [Guard] which r passed; if it passed none, it says less.
// See https://modelcontextprotocol.io/specification/2026-07-28/basic/authorization#runtime-insufficient-scope-errors.
func Deny(w http.ResponseWriter, r *http.Request, err error) {
	passedGuardOf(r.Context()).guard.Deny(w, r, err)
}

// Deny is [Deny] for a handler that knows its guard. A nil Guard has no metadata to point to.
func (g *Guard) Deny(w http.ResponseWriter, r *http.Request, err error) {
	used := passedGuardOf(r.Context()).scheme
	if used == "" {
		used = schemeBearer
	}
	var scopeErr *ScopeError
	switch {
	case errors.As(err, &scopeErr):
		scopes := scopeErr.Scopes
		if g != nil {
			scopes = slices.Concat(g.required, scopes) // these the operation needs too, and some clients ask for no more than they are told
		}
		g.reject(w, r, &rejection{status: http.StatusForbidden, scheme: used, code: "insufficient_scope", scopes: scopes, err: err})
	case errors.Is(err, ErrInvalidToken):
		g.reject(w, r, &rejection{status: http.StatusUnauthorized, scheme: used, code: "invalid_token", err: err})
	case errors.Is(err, ErrUnauthenticated):
		g.reject(w, r, &rejection{status: http.StatusUnauthorized, err: err})
	case errors.Is(err, ErrUnavailable):
		g.reject(w, r, &rejection{status: http.StatusServiceUnavailable, retryAfter: retryUnavailable, err: err})
	default:
		g.reject(w, r, &rejection{status: http.StatusForbidden, err: err})
	}
}

// retryUnavailable is how long clients are told to wait for an issuer.
const retryUnavailable = 5 * time.Second

// reject writes the answer. A nil guard is one that nothing is known of.
func (g *Guard) reject(w http.ResponseWriter, r *http.Request, f *rejection) {
	if g != nil {
		g.logRejection(r, f)
	}
	h := w.Header()
	h.Set("Cache-Control", "no-store")
	h.Set("X-Content-Type-Options", "nosniff")
	if f.status == http.StatusUnauthorized || f.code == "insufficient_scope" || f.code == "invalid_request" {
		for _, c := range g.challenges(f) {
			h.Add("WWW-Authenticate", c)
		}
	}
	if f.nonce != "" {
		h.Set("DPoP-Nonce", f.nonce)
	}
	if f.retryAfter > 0 {
		h.Set("Retry-After", strconv.FormatInt(int64((f.retryAfter+time.Second-1)/time.Second), 10))
	}
	if f.code == "" {
		h.Set("Content-Length", "0")
		w.WriteHeader(f.status)
		return
	}
	body, err := json.Marshal(map[string]string{"error": f.code, "error_description": errorDescriptions[f.code]})
	if err != nil {
		body = nil
	}
	h.Set("Content-Type", "application/json")
	h.Set("Content-Length", strconv.Itoa(len(body)))
	w.WriteHeader(f.status)
	if r.Method != http.MethodHead {
		_, _ = w.Write(body) // the client is gone
	}
}

// logRejection logs a refusal.
func (g *Guard) logRejection(r *http.Request, f *rejection) {
	if f.status == http.StatusServiceUnavailable {
		g.log.WarnContext(r.Context(), "cannot verify token", "error", f.err)
		return
	}
	g.log.DebugContext(r.Context(), "request refused", "status", f.status, "code", f.code, "error", f.err)
}

// challenges returns the values of WWW-Authenticate: that of the scheme which the request used comes first, and only it says what was wrong. When the
// scheme was right, but not the scope, it is the only one.
func (g *Guard) challenges(f *rejection) []string {
	offered := []scheme{schemeBearer}
	if g != nil && g.dpop != nil {
		offered = []scheme{schemeBearer, schemeDPoP}
		if g.dpop.required {
			offered = []scheme{schemeDPoP}
		}
	}
	main := f.scheme
	if !slices.Contains(offered, main) {
		main = offered[0]
	}
	list := []string{g.challenge(main, f, f.code)}
	if f.status == http.StatusForbidden {
		return list
	}
	for _, s := range offered {
		if s != main {
			list = append(list, g.challenge(s, f, ""))
		}
	}
	return list
}

// challenge returns one challenge. What it quotes was checked when the guard was made, is a constant, or goes through validScope: there is nothing to
// escape.
func (g *Guard) challenge(s scheme, f *rejection, code string) string {
	var params []string
	add := func(name, value string) {
		if value != "" {
			params = append(params, name+`="`+value+`"`)
		}
	}
	if g != nil {
		add("realm", g.realm)
	}
	add("error", code)
	add("error_description", errorDescriptions[code])
	scopes := f.scopes
	if scopes == nil && g != nil {
		scopes = g.required
	}
	scopes = slices.DeleteFunc(slices.Clone(scopes), func(s string) bool { return !validScope(s) })
	add("scope", strings.Join(unique(scopes), " "))
	if g != nil {
		add("resource_metadata", g.metadataURL)
		if s == schemeDPoP {
			add("algs", strings.Join(g.dpop.names, " "))
		}
	}
	if len(params) == 0 {
		return string(s)
	}
	return string(s) + " " + strings.Join(params, ", ")
}

const wellKnownMetadata = "/.well-known/oauth-protected-resource"

// resourceMetadata is the document of https://www.rfc-editor.org/rfc/rfc9728#section-2.
type resourceMetadata struct {
	Resource             string   `json:"resource"`
	AuthorizationServers []string `json:"authorization_servers"`
	ScopesSupported      []string `json:"scopes_supported,omitempty"`
	BearerMethods        []string `json:"bearer_methods_supported"`
	Name                 string   `json:"resource_name,omitempty"`
	Documentation        string   `json:"resource_documentation,omitempty"`
	DPoPAlgorithms       []string `json:"dpop_signing_alg_values_supported,omitempty"`
	DPoPRequired         bool     `json:"dpop_bound_access_tokens_required,omitempty"`
}

// buildMetadata makes the metadata, if there are authorization servers.
func (g *Guard) buildMetadata(o *GuardOptions) error {
	servers := unique(o.AuthorizationServers)
	if len(servers) == 0 {
		if o.MetadataURL != "" {
			return errors.New("auth: metadata without authorization servers")
		}
		return nil
	}
	if g.resource == "" {
		return errors.New("auth: metadata needs the URL of the resource")
	}
	for _, s := range servers {
		if u, err := checkEndpoint(s); err != nil {
			return fmt.Errorf("auth: authorization server: %w", err)
		} else if u.RawQuery != "" || u.ForceQuery {
			return errors.New("auth: the URL of an authorization server has a query")
		}
	}
	origin := originURL(g.resource)
	path := strings.TrimPrefix(g.resource, origin)
	g.metadataPaths = slices.Compact([]string{wellKnownMetadata + path, wellKnownMetadata})
	g.metadataURL = origin + wellKnownMetadata + path
	if o.MetadataURL != "" {
		u, err := checkEndpoint(o.MetadataURL)
		if err != nil {
			return fmt.Errorf("auth: metadata: %w", err)
		}
		g.metadataURL = u.String() // escapes what would not fit into a quoted string
	}
	doc := resourceMetadata{
		Resource: g.resource, AuthorizationServers: servers, ScopesSupported: unique(o.ScopesSupported), BearerMethods: []string{"header"},
		Name: o.Name, Documentation: o.Documentation,
	}
	if g.dpop != nil {
		doc.DPoPAlgorithms, doc.DPoPRequired = g.dpop.names, g.dpop.required
	}
	text, err := json.Marshal(doc)
	g.metadata = text
	return err
}

// MetadataPaths returns the paths that the metadata should be served at: the well-known one of the resource, and that of the root, where some clients look
// too. A resource without a path has one, a guard without authorization servers none.
// See https://modelcontextprotocol.io/specification/2026-07-28/basic/authorization#protected-resource-metadata-discovery-requirements.
func (g *Guard) MetadataPaths() []string { return slices.Clone(g.metadataPaths) }

// MetadataURL returns where clients are told to find the metadata, or "" if there is none.
func (g *Guard) MetadataURL() string { return g.metadataURL }

// Metadata returns a handler that serves the metadata of the resource (https://www.rfc-editor.org/rfc/rfc9728), to everyone and every web page. Without
// authorization servers it answers 404.
func (g *Guard) Metadata() http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		h := w.Header()
		h.Set("X-Content-Type-Options", "nosniff")
		if g.metadata == nil {
			http.Error(w, http.StatusText(http.StatusNotFound), http.StatusNotFound)
			return
		}
		h.Set("Access-Control-Allow-Origin", "*")
		switch r.Method {
		case http.MethodGet, http.MethodHead:
			h.Set("Content-Type", "application/json")
			h.Set("Cache-Control", "max-age=300")
			h.Set("Content-Length", strconv.Itoa(len(g.metadata)))
			if r.Method == http.MethodGet {
				_, _ = w.Write(g.metadata) // the client is gone
			}
		case http.MethodOptions:
			h.Set("Access-Control-Allow-Methods", "GET, HEAD, OPTIONS")
			h.Set("Access-Control-Allow-Headers", "*")
			h.Set("Access-Control-Max-Age", "86400")
			w.WriteHeader(http.StatusNoContent)
		default:
			h.Set("Allow", "GET, HEAD, OPTIONS")
			w.WriteHeader(http.StatusMethodNotAllowed)
		}
	})
}

// Handler returns a handler that serves the metadata at [Guard.MetadataPaths], and protects next from everything else.
func (g *Guard) Handler(next http.Handler) http.Handler {
	metadata, protected := g.Metadata(), g.Protect(next)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if slices.Contains(g.metadataPaths, r.URL.EscapedPath()) {
			metadata.ServeHTTP(w, r)
			return
		}
		protected.ServeHTTP(w, r)
	})
}
