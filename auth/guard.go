package auth

import (
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/netip"
	"net/url"
	"slices"
	"strings"
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
