package auth

import (
	"cmp"
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

// GuardOptions are the options of a [Guard]. Verifier is required. Resource is required with
// AuthorizationServers or DPoP.
type GuardOptions struct {
	// Resource is the public URL of the protected server, as clients know it. Its canonical form
	// ([CanonicalResource]) is the audience of tokens; give the verifiers the same.
	Resource string
	// Verifier verifies tokens.
	Verifier Verifier
	// AuthorizationServers are the issuers that clients can get tokens from, as named in the
	// issuers' metadata. Without them, as with fixed tokens, the guard has no metadata.
	AuthorizationServers []string
	// ScopesSupported are the scopes that clients request by default. Keep them few; see
	// https://modelcontextprotocol.io/specification/2026-07-28/basic/authorization
	// (section "Scope Selection Strategy"). offline_access is an error.
	ScopesSupported []string
	// RequiredScopes are the scopes that every request needs. Challenges name them.
	RequiredScopes []string
	// ScopeIncludes maps a scope to the scopes that it includes: {"admin": {"write"}, "write":
	// {"read"}} lets admin do everything.
	ScopeIncludes map[string][]string
	// DPoP enables proofs of possession. Nil means bearer tokens only: tokens that are bound to a
	// key are rejected.
	DPoP *DPoPOptions
	// KeepToken keeps the token of each request for [TokenOf]. It is for servers that exchange the
	// token of a caller for one for another server (https://www.rfc-editor.org/rfc/rfc8693).
	KeepToken bool
	// FailureLimit limits failures. Nil means the defaults.
	FailureLimit *FailureLimit
	// ClientAddr returns the client's address for FailureLimit. Behind a proxy it must use the
	// proxy's headers. An invalid address is not limited. Nil means http.Request.RemoteAddr, except
	// for loopback addresses, which are probably a proxy and not limited.
	ClientAddr func(*http.Request) netip.Addr
	// PublicURL returns the URL that the client sent a request to, for DPoP. Nil means the scheme
	// and host of Resource with the path of the request. Set it if a proxy or an outer handler
	// changes the path. It must not trust the Host header.
	PublicURL func(*http.Request) string
	// MetadataURL is where clients find the metadata, if not at the well-known path below the
	// resource's origin.
	MetadataURL string
	// Name and Documentation are resource_name and resource_documentation in the metadata.
	Name, Documentation string
	// Realm is the realm in challenges. It may be empty.
	Realm string
	// Logger receives rejections at level debug and unavailable verifiers at level warn, without
	// any part of a token. Nil means no log.
	Logger *slog.Logger
}

// A Guard passes requests with a valid token and answers the others. Many goroutines may use it at
// once. It starts no goroutines and need not be closed.
type Guard struct {
	verifier Verifier
	// resource is canonical. It may be empty.
	resource string
	// metadataURL is empty without metadata.
	metadataURL   string
	metadataPaths []string
	metadata      []byte
	required      []string
	hierarchy     scopeHierarchy
	// dpop is nil if DPoP is off.
	dpop       *dpopChecker
	keepToken  bool
	failures   *failureLimiter
	clientAddr func(*http.Request) netip.Addr
	publicURL  func(*http.Request) string
	realm      string
	log        *slog.Logger
}

// NewGuard returns a guard. Its error names the invalid option.
func NewGuard(o *GuardOptions) (*Guard, error) {
	if o == nil || o.Verifier == nil {
		return nil, errors.New("auth: a guard needs a verifier")
	}
	g := &Guard{
		verifier: o.Verifier, required: unique(o.RequiredScopes), keepToken: o.KeepToken, failures: newFailureLimiter(o.FailureLimit),
		clientAddr: o.ClientAddr, publicURL: o.PublicURL, realm: o.Realm, log: cmp.Or(o.Logger, slog.New(slog.DiscardHandler)),
	}
	if g.clientAddr == nil {
		g.clientAddr = remoteAddr
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
		return errors.New("auth: a resource must not require the scope offline_access, which is for authorization servers")
	}
	if strings.ContainsFunc(o.Realm, func(r rune) bool { return r < ' ' || r > '~' || r == '"' || r == '\\' }) {
		return errors.New("auth: the realm has characters that a header cannot contain")
	}
	return nil
}

// CanonicalResource returns the canonical form of a server's URL, which is the audience of its
// tokens: scheme and host in lower case, without a default port and without a trailing slash. It
// returns an error if the URL has a user, a query, a fragment or dot segments, or does not use
// https, or http with a loopback host.
// See https://modelcontextprotocol.io/specification/2026-07-28/basic/authorization
// (section "Canonical Server URI").
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
			return "", errors.New("auth: resource: the URL's path has a dot segment")
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

// remoteAddr returns the address of the connection's peer, or an invalid address if it is a
// loopback address.
func remoteAddr(r *http.Request) netip.Addr {
	ap, err := netip.ParseAddrPort(r.RemoteAddr)
	if addr := ap.Addr().Unmap(); err == nil && !addr.IsLoopback() {
		return addr
	}
	return netip.Addr{}
}

// Protect returns a handler that passes requests with a valid token to next. It answers the others:
//
//   - 401 without a token, or with an invalid token or proof,
//   - 400 for malformed requests: more than one Authorization header, a token in the query, a text
//     that cannot be a token,
//   - 403 if one of [GuardOptions.RequiredScopes] is missing,
//   - 429 after too many failures, see [FailureLimit],
//   - 503 if the token cannot be verified now.
//
// It checks each request separately, without sessions. The context of next's request has the
// principal, for [PrincipalOf], [Require] and [Deny]. Its headers contain neither the token nor the
// proof, so that they cannot be forwarded by mistake.
//
// Preflight requests of browsers have no token and get a 401: handle them in front of the guard.
// See
// https://modelcontextprotocol.io/specification/2026-07-28/basic/authorization#token-requirements.
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
		if g.keepToken {
			ctx = context.WithValue(ctx, tokenKey{}, adm.token)
		}
		r = r.WithContext(ctx) // a copy
		r.Header = maps.Clone(r.Header)
		r.Header.Del("Authorization")
		r.Header.Del("DPoP")
		next.ServeHTTP(w, r)
	})
}

// An admission is the result for an accepted request.
type admission struct {
	principal *Principal
	scheme    scheme
	token     Secret
	// nonce is a new nonce for the client. It may be empty.
	nonce string
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
		err = invalid("the token is bound to a key, but the request has no proof")
	} else if err == nil && s == schemeDPoP && p.KeyThumbprint == "" {
		err = invalid("the request has a proof, but the token is not bound to a key")
	}
	if err != nil {
		if !errors.Is(err, ErrInvalidToken) {
			return admission{}, &rejection{status: http.StatusServiceUnavailable, retryAfter: retryUnavailable, err: err}
		}
		// A wrong presentation of a token says nothing about the token.
		g.failures.addFailure(addr, digest, p == nil)
		return admission{}, &rejection{status: http.StatusUnauthorized, scheme: s, code: "invalid_token", err: err}
	}
	adm := admission{principal: p, scheme: s}
	if g.keepToken {
		adm.token = NewSecret(token)
	}
	if s == schemeDPoP {
		if adm.nonce, rejected = g.checkProof(r, token, p); rejected != nil {
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

// verify calls the verifier, and checks itself what the principal shows.
func (g *Guard) verify(ctx context.Context, token string) (*Principal, error) {
	found, err := g.verifier.Verify(ctx, token)
	switch {
	case err != nil:
		return nil, err
	case found == nil:
		return nil, errNoPrincipal
	case !found.Expires.IsZero() && !time.Now().Before(found.Expires):
		return nil, invalid("token has expired")
	}
	p := *found
	p.hierarchy = g.hierarchy
	return &p, nil
}

// checkProof checks the proof. It returns a new nonce if the client should get one.
func (g *Guard) checkProof(r *http.Request, token string, principal *Principal) (nonce string, _ *rejection) {
	stale, err := g.dpop.check(r, g.publicURL(r), token, principal)
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

// credentials returns the token of a request, which has a valid syntax, and its scheme.
func (g *Guard) credentials(r *http.Request) (scheme, string, *rejection) {
	malformed := func(err error) (scheme, string, *rejection) {
		return "", "", &rejection{status: http.StatusBadRequest, code: "invalid_request", err: err}
	}
	if r.URL.RawQuery != "" {
		query, err := url.ParseQuery(r.URL.RawQuery)
		if query.Has("access_token") {
			return malformed(errors.New("token in the query"))
		}
		if err != nil && strings.Contains(r.URL.RawQuery, "access_token") {
			return malformed(errors.New("malformed query"))
		}
	}
	headers := r.Header.Values("Authorization")
	if len(headers) == 0 {
		return "", "", &rejection{status: http.StatusUnauthorized, err: ErrUnauthenticated}
	}
	if len(headers) > 1 {
		return malformed(errors.New("more than one Authorization header"))
	}
	s, token, err := parseAuthorization(headers[0])
	if err != nil {
		return malformed(err)
	}
	offered := s == schemeBearer && (g.dpop == nil || !g.dpop.required) || s == schemeDPoP && g.dpop != nil
	if !offered {
		return "", "", &rejection{status: http.StatusUnauthorized, err: errors.New("unsupported authorization scheme")}
	}
	return s, token, nil
}

// parseAuthorization parses an Authorization header. The token is "" if the scheme is unknown. See
// https://www.rfc-editor.org/rfc/rfc6750#section-2.1 and
// https://www.rfc-editor.org/rfc/rfc9449#section-7.1.
func parseAuthorization(header string) (scheme, string, error) {
	name, token, _ := strings.Cut(header, " ")
	known := []scheme{schemeBearer, schemeDPoP}
	i := slices.IndexFunc(known, func(s scheme) bool { return strings.EqualFold(string(s), name) })
	if i < 0 {
		return "", "", nil
	}
	token = strings.TrimLeft(token, " ")
	if len(token) > maxToken {
		return "", "", fmt.Errorf("token of more than %d bytes", maxToken)
	}
	if !validToken(token) {
		return "", "", errors.New("malformed token")
	}
	return known[i], token, nil
}

// validToken reports whether s is a b64token.
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

// A scheme is an authentication scheme for tokens.
type scheme string

const (
	schemeBearer scheme = "Bearer"
	schemeDPoP   scheme = "DPoP"
)

// A rejection is the response to a rejected request.
type rejection struct {
	status int
	// scheme is the scheme of the request. It may be empty.
	scheme scheme
	// code is an error code of https://www.rfc-editor.org/rfc/rfc6750#section-3.1 or
	// https://www.rfc-editor.org/rfc/rfc9449#section-12.2. It may be empty.
	code string
	// scopes are the required scopes.
	scopes     []string
	retryAfter time.Duration
	// nonce may be empty.
	nonce string
	// err is the cause, for the log.
	err error
}

var errorDescriptions = map[string]string{
	"invalid_request":    "The request is malformed.",
	"invalid_token":      "The token is not valid here.",
	"insufficient_scope": "The operation needs more scopes.",
	"invalid_dpop_proof": "The DPoP proof is not valid.",
	"use_dpop_nonce":     "The DPoP proof needs another nonce.",
}

type guardKey struct{}

// passedGuard is what Deny needs to know about the guard that a request passed.
type passedGuard struct {
	guard  *Guard
	scheme scheme
}

// Deny rejects an authenticated request because of err. It answers a [*ScopeError] in err's chain
// with 403 and a challenge that names all scopes of the operation, [ErrUnauthenticated] and
// [ErrInvalidToken] with 401, [ErrUnavailable] with 503, and other errors with 403. It sends no
// part of the error's text. Nothing may be written to w before. The challenge is that of the
// [Guard] that r passed; without one it has fewer parameters.
// See https://modelcontextprotocol.io/specification/2026-07-28/basic/authorization
// (section "Runtime Insufficient Scope Errors").
func Deny(w http.ResponseWriter, r *http.Request, err error) {
	passed, ok := r.Context().Value(guardKey{}).(passedGuard)
	if !ok {
		passed = passedGuard{&Guard{log: slog.New(slog.DiscardHandler)}, schemeBearer}
	}
	g, used := passed.guard, passed.scheme
	var scopeErr *ScopeError
	switch {
	case errors.As(err, &scopeErr):
		// The operation needs the guard's scopes too, and some clients request only the scopes in
		// the challenge.
		scopes := slices.Concat(g.required, scopeErr.Scopes)
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

// retryUnavailable is the Retry-After of clients when a verifier is unavailable.
const retryUnavailable = 5 * time.Second

// reject writes the response.
func (g *Guard) reject(w http.ResponseWriter, r *http.Request, f *rejection) {
	g.logRejection(r, f)
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
	// Two texts are always marshaled.
	body, _ := json.Marshal(map[string]string{"error": f.code, "error_description": errorDescriptions[f.code]})
	h.Set("Content-Type", "application/json")
	h.Set("Content-Length", strconv.Itoa(len(body)))
	w.WriteHeader(f.status)
	if r.Method != http.MethodHead {
		_, _ = w.Write(body) // the client is gone
	}
}

// logRejection logs a rejection.
func (g *Guard) logRejection(r *http.Request, f *rejection) {
	if f.status == http.StatusServiceUnavailable {
		g.log.WarnContext(r.Context(), "cannot verify token", "error", f.err)
		return
	}
	g.log.DebugContext(r.Context(), "request rejected", "status", f.status, "code", f.code, "error", f.err)
}

// challenges returns the values of WWW-Authenticate. The scheme of the request comes first, and
// only it has the error. For a missing scope it is the only one.
func (g *Guard) challenges(f *rejection) []string {
	offered := []scheme{schemeBearer}
	if g.dpop != nil {
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

// challenge returns one challenge. Its texts need no escaping: they were checked when the guard was
// made, are constants, or are checked by validScope.
func (g *Guard) challenge(s scheme, f *rejection, code string) string {
	var params []string
	add := func(name, value string) {
		if value != "" {
			params = append(params, name+`="`+value+`"`)
		}
	}
	add("realm", g.realm)
	add("error", code)
	add("error_description", errorDescriptions[code])
	scopes := f.scopes
	if scopes == nil {
		scopes = g.required
	}
	scopes = slices.DeleteFunc(slices.Clone(scopes), func(s string) bool { return !validScope(s) })
	add("scope", strings.Join(unique(scopes), " "))
	add("resource_metadata", g.metadataURL)
	if s == schemeDPoP {
		add("algs", strings.Join(g.dpop.algorithms, " "))
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

// buildMetadata builds the metadata, if there are authorization servers.
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
		g.metadataURL = u.String() // escapes what does not fit into a quoted string
	}
	doc := resourceMetadata{
		Resource: g.resource, AuthorizationServers: servers, ScopesSupported: unique(o.ScopesSupported), BearerMethods: []string{"header"},
		Name: o.Name, Documentation: o.Documentation,
	}
	if g.dpop != nil {
		doc.DPoPAlgorithms, doc.DPoPRequired = g.dpop.algorithms, g.dpop.required
	}
	text, err := json.Marshal(doc)
	g.metadata = text
	return err
}

// MetadataPaths returns the paths to serve the metadata at: the well-known path of the resource,
// and that of the root, which some clients use. A resource without a path has one path; a guard
// without authorization servers has no path.
// See https://modelcontextprotocol.io/specification/2026-07-28/basic/authorization
// (section "Protected Resource Metadata Discovery Requirements").
func (g *Guard) MetadataPaths() []string { return slices.Clone(g.metadataPaths) }

// Metadata returns a handler that serves the metadata of the resource
// (https://www.rfc-editor.org/rfc/rfc9728) to everyone, including web pages of any origin. Without
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

// Handler returns a handler that serves the metadata at [Guard.MetadataPaths] and protects next.
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
