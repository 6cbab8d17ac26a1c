package oauth

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"slices"
	"strings"
)

// Well-known paths. See https://www.rfc-editor.org/rfc/rfc8414#section-3 and
// https://www.rfc-editor.org/rfc/rfc9728#section-3.
const (
	wellKnownPRM  = "/.well-known/oauth-protected-resource"
	wellKnownAS   = "/.well-known/oauth-authorization-server"
	wellKnownOIDC = "/.well-known/openid-configuration"
)

// A discovery is the result of finding a server's authorization server.
type discovery struct {
	// resource is the server's name in requests to the authorization server, exactly as in its
	// metadata.
	resource string
	// scopes are the scopes in the resource's metadata.
	scopes []string
	// dpopRequired says that the resource's metadata requires DPoP.
	dpopRequired bool
	issuer       string
	as           *issuerDocument
}

// acceptsIssuer reports whether the credentials may be used at an issuer.
func (o *ClientOptions) acceptsIssuer(issuer string) bool {
	return o.ClientIssuer == "" || o.ClientIssuer == TrustFirstIssuer || o.ClientIssuer == issuer
}

// findIssuer finds the authorization server of the MCP server. It follows the order of the
// specification: the URL in the header, the well-known URI with the server's path, the one at the
// root, and otherwise the rules from before such metadata existed. See
// https://modelcontextprotocol.io/specification/2026-07-28/basic/authorization
// (section "Authorization Server Location").
func (s *serverAuth) findIssuer(ctx context.Context, metadata string) (*discovery, error) {
	doc, err := s.resourceMetadata(ctx, metadata)
	if err != nil {
		return nil, err
	}
	if doc == nil {
		if s.client.opts.RequireMetadata {
			return nil, fmt.Errorf("%w: the server has no metadata that names an authorization server", ErrUntrusted)
		}
		return s.legacyDiscovery(ctx)
	}
	if err := checkResource(doc.Resource, s.server); err != nil {
		return nil, err
	}
	issuer, err := s.client.opts.chooseIssuer(doc.AuthorizationServers)
	if err != nil {
		return nil, err
	}
	as, err := s.client.fetch.issuerMetadata(ctx, issuer)
	if err != nil {
		return nil, err
	}
	return &discovery{
		resource:     doc.Resource,
		scopes:       unionScopes(nil, doc.ScopesSupported),
		dpopRequired: doc.DPoPRequired,
		issuer:       issuer,
		as:           as,
	}, nil
}

// resourceMetadata returns the metadata of the server, or nil if it has no metadata.
func (s *serverAuth) resourceMetadata(ctx context.Context, metadata string) (*resourceDocument, error) {
	addresses := resourceURLs(s.server)
	if metadata != "" {
		u, err := s.server.Parse(metadata) // some servers send a path
		if err != nil {
			return nil, fmt.Errorf("%w: resource_metadata is not a URL", ErrUntrusted)
		}
		if o := originOf(u); o != s.origin && !slices.Contains(s.client.opts.MetadataOrigins, o) {
			return nil, fmt.Errorf("%w: resource_metadata is on another host, %q", ErrUntrusted, printable(o, 200))
		}
		addresses = []string{u.String()}
	}
	for _, address := range addresses {
		body, found, err := s.client.fetch.get(ctx, address)
		doc := new(resourceDocument)
		if found {
			err = decodeObject(body, doc)
		}
		if err != nil {
			return nil, fmt.Errorf("metadata of the resource: %w", err)
		}
		if found {
			return doc, nil
		}
	}
	if metadata != "" {
		return nil, fmt.Errorf("%w: resource_metadata not found: %s", ErrUntrusted, printable(addresses[0], 200))
	}
	return nil, nil
}

// resourceURLs returns the possible URLs of a server's metadata, in order.
func resourceURLs(server *url.URL) []string {
	root := originOf(server) + wellKnownPRM
	path := strings.TrimSuffix(server.EscapedPath(), "/")
	if server.RawQuery != "" {
		path += "?" + server.RawQuery
	}
	if path == "" {
		return []string{root}
	}
	return []string{root + path, root}
}

// chooseIssuer chooses an authorization server.
func (o *ClientOptions) chooseIssuer(issuers []string) (string, error) {
	if len(issuers) == 0 {
		return "", fmt.Errorf("%w: the server's metadata names no authorization server", ErrUntrusted)
	}
	i := slices.IndexFunc(issuers, o.acceptsIssuer)
	if i < 0 {
		return "", fmt.Errorf("%w: the credentials belong to %q, but the server requires %q", ErrUntrusted, o.ClientIssuer, printable(issuers[0], 200))
	}
	return issuers[i], nil
}

// issuerMetadata returns the metadata of an issuer.
func (f *fetcher) issuerMetadata(ctx context.Context, issuer string) (*issuerDocument, error) {
	addresses, err := issuerURLs(issuer)
	if err != nil {
		return nil, err
	}
	if _, err := f.parseEndpoint("issuer", issuer); err != nil {
		return nil, err
	}
	for _, address := range addresses {
		body, found, err := f.get(ctx, address)
		if err != nil {
			return nil, fmt.Errorf("metadata of the authorization server: %w", err)
		}
		if found {
			return decodeIssuerDocument(body, issuer, f)
		}
	}
	return nil, fmt.Errorf("%w: the authorization server has no metadata", ErrUntrusted)
}

// issuerURLs returns the possible URLs of an issuer's metadata, in order.
// See https://modelcontextprotocol.io/specification/2026-07-28/basic/authorization
// (section "Authorization Server Metadata Discovery").
func issuerURLs(issuer string) ([]string, error) {
	u, err := url.Parse(issuer)
	if err != nil || u.RawQuery != "" || u.ForceQuery || u.Fragment != "" || hasDotSegment(u.EscapedPath()) {
		return nil, fmt.Errorf("%w: the issuer is not a URL without query and fragment", ErrUntrusted)
	}
	root := u.Scheme + "://" + u.Host
	path := strings.TrimSuffix(u.EscapedPath(), "/")
	if path == "" {
		return []string{root + wellKnownAS, root + wellKnownOIDC}, nil
	}
	return []string{
		root + wellKnownAS + path,
		root + wellKnownOIDC + path,
		root + path + wellKnownOIDC,
	}, nil
}

// legacyDiscovery handles servers that are their own authorization server, as all were before
// resources had metadata. The issuer's metadata is at the server's root; without it the endpoints
// have default names.
func (s *serverAuth) legacyDiscovery(ctx context.Context) (*discovery, error) {
	issuer, fetch := s.origin, s.client.fetch
	if o := &s.client.opts; !o.acceptsIssuer(issuer) {
		return nil, fmt.Errorf("%w: the credentials belong to %q, but the server authorizes clients itself", ErrUntrusted, o.ClientIssuer)
	}
	out := &discovery{resource: s.name, issuer: issuer}
	body, found, err := fetch.get(ctx, issuer+wellKnownAS)
	if err != nil {
		return nil, fmt.Errorf("metadata of the authorization server: %w", err)
	}
	if found {
		out.as, err = decodeIssuerDocument(body, issuer, fetch)
		return out, err
	}
	out.as = &issuerDocument{
		Issuer:                issuer,
		AuthorizationEndpoint: issuer + "/authorize",
		TokenEndpoint:         issuer + "/token",
		RegistrationEndpoint:  issuer + "/register",
		assumed:               true,
	}
	_, err = fetch.parseEndpoint("the server", issuer)
	return out, err
}

// errNoPKCE means that an authorization server does not advertise PKCE with S256.
var errNoPKCE = errors.New("the authorization server does not list S256 in code_challenge_methods_supported")

// checkPKCE checks that the authorization server supports PKCE. Without metadata the support is
// assumed.
func (d *issuerDocument) checkPKCE() error {
	if d.AuthorizationEndpoint == "" {
		return fmt.Errorf("%w: the authorization server has no authorization endpoint", ErrUntrusted)
	}
	if !d.assumed && !slices.Contains(d.ChallengeMethods, "S256") {
		return fmt.Errorf("%w: %w", ErrUntrusted, errNoPKCE)
	}
	return nil
}

// resourceDocument is the part of a protected resource's metadata that a client uses. See
// https://www.rfc-editor.org/rfc/rfc9728#section-2.
type resourceDocument struct {
	Resource             string   `json:"resource"`
	AuthorizationServers []string `json:"authorization_servers"`
	ScopesSupported      []string `json:"scopes_supported"`
	DPoPRequired         bool     `json:"dpop_bound_access_tokens_required"`
}

// issuerDocument is the part of an authorization server's metadata that a client uses, for both RFC
// 8414 and OpenID Connect. See https://www.rfc-editor.org/rfc/rfc8414#section-2.
type issuerDocument struct {
	Issuer                string   `json:"issuer"`
	AuthorizationEndpoint string   `json:"authorization_endpoint"`
	TokenEndpoint         string   `json:"token_endpoint"`
	RegistrationEndpoint  string   `json:"registration_endpoint"`
	ScopesSupported       []string `json:"scopes_supported"`
	TokenAuthMethods      []string `json:"token_endpoint_auth_methods_supported"`
	ChallengeMethods      []string `json:"code_challenge_methods_supported"`
	IssInResponse         bool     `json:"authorization_response_iss_parameter_supported"`
	ClientIDMetadata      bool     `json:"client_id_metadata_document_supported"`
	DPoPAlgorithms        []string `json:"dpop_signing_alg_values_supported"`
	// assumed says that there was no document. The endpoints are then those of section 2.3.3 of the
	// first revision of the specification with authorization.
	assumed bool
}

// decodeIssuerDocument decodes the metadata of an issuer and checks that it belongs to the issuer.
func decodeIssuerDocument(body []byte, issuer string, f *fetcher) (*issuerDocument, error) {
	var d issuerDocument
	if err := decodeObject(body, &d); err != nil {
		return nil, fmt.Errorf("metadata of the authorization server: %w", err)
	}
	// Compare as text without normalization: two issuers may differ by a slash.
	if d.Issuer != issuer {
		return nil, fmt.Errorf("%w: the metadata of %q names another issuer, %q", ErrUntrusted, printable(issuer, 200), printable(d.Issuer, 200))
	}
	for _, e := range []struct {
		name, text string
		required   bool
	}{
		{"token_endpoint", d.TokenEndpoint, true},
		{"authorization_endpoint", d.AuthorizationEndpoint, false},
		{"registration_endpoint", d.RegistrationEndpoint, false},
	} {
		if e.text == "" && !e.required {
			continue
		}
		if _, err := f.parseEndpoint(e.name, e.text); err != nil {
			return nil, err
		}
	}
	return &d, nil
}

// canonicalServer parses the URL of an MCP endpoint and returns the canonical form, for comparison
// and for the parameter resource.
// See https://modelcontextprotocol.io/specification/2026-07-28/basic/authorization
// (section "Canonical Server URI").
func canonicalServer(text string) (*url.URL, error) {
	u, err := url.Parse(text)
	if err != nil {
		return nil, fmt.Errorf("the server's URL is malformed")
	}
	u.Scheme = strings.ToLower(u.Scheme)
	if (u.Scheme != "https" && u.Scheme != "http") || u.Host == "" || u.User != nil || u.Fragment != "" || u.Opaque != "" {
		return nil, fmt.Errorf("the server's URL is not an http URL with a host and without password and fragment")
	}
	u.Host = canonicalHost(u)
	if hasDotSegment(u.EscapedPath()) {
		return nil, fmt.Errorf("the server's URL has a dot segment in its path")
	}
	if u.Path == "/" {
		u.Path, u.RawPath = "", ""
	}
	return u, nil
}

// canonicalHost returns the host in lower case, without the scheme's default port.
func canonicalHost(u *url.URL) string {
	host, port := strings.ToLower(u.Hostname()), u.Port()
	if strings.Contains(host, ":") {
		host = "[" + host + "]"
	}
	if port == "" || u.Scheme == "https" && port == "443" || u.Scheme == "http" && port == "80" {
		return host
	}
	return host + ":" + port
}

func hasDotSegment(path string) bool {
	for segment := range strings.SplitSeq(path, "/") {
		if s := strings.ReplaceAll(strings.ToLower(segment), "%2e", "."); s == "." || s == ".." {
			return true
		}
	}
	return false
}

// originOf returns the canonical scheme and host of a URL.
func originOf(u *url.URL) string {
	v := *u
	v.Scheme = strings.ToLower(v.Scheme)
	return v.Scheme + "://" + canonicalHost(&v)
}

// checkResource checks that metadata for this resource may be used for a server: the resource must
// be the server or contain it. See https://www.rfc-editor.org/rfc/rfc9728#section-3.3.
func checkResource(resource string, server *url.URL) error {
	mismatch := fmt.Errorf("%w: the metadata is for the resource %q, not for this server", ErrUntrusted, printable(withoutParameters(resource), 200))
	u, err := canonicalServer(resource)
	if err != nil || originOf(u) != originOf(server) {
		return mismatch
	}
	if u.RawQuery != "" && u.RawQuery != server.RawQuery {
		return mismatch
	}
	outer := pathSegments(u.EscapedPath())
	inner := pathSegments(server.EscapedPath())
	if len(outer) > len(inner) || !slices.Equal(outer, inner[:len(outer)]) {
		return mismatch
	}
	return nil
}

func pathSegments(path string) []string {
	path = strings.Trim(path, "/")
	if path == "" {
		return nil
	}
	return strings.Split(path, "/")
}
