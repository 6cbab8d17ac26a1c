package auth

import (
	"fmt"
	"net/url"
	"slices"
	"strings"
)

// resourceDocument is what a client reads of the metadata of a protected resource. See https://www.rfc-editor.org/rfc/rfc9728#section-2.
type resourceDocument struct {
	Resource             string   `json:"resource"`
	AuthorizationServers []string `json:"authorization_servers"`
	ScopesSupported      []string `json:"scopes_supported"`
	DPoPRequired         bool     `json:"dpop_bound_access_tokens_required"`
}

func decodeResourceDocument(body []byte) (*resourceDocument, error) {
	var d resourceDocument
	if err := decodeObject(body, &d); err != nil {
		return nil, fmt.Errorf("metadata of the resource: %w", err)
	}
	return &d, nil
}

// issuerDocument is what a client reads of the metadata of an authorization server, whether it is by RFC 8414 or by OpenID Connect. See
// https://www.rfc-editor.org/rfc/rfc8414#section-2.
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
	// assumed is set if there was no document, and the endpoints are those of section 2.3.3 of the specification's first revision with authorization.
	assumed bool
}

// decodeIssuerDocument decodes the metadata of an issuer and checks that it is that issuer's.
func decodeIssuerDocument(body []byte, issuer string, f *fetcher) (*issuerDocument, error) {
	var d issuerDocument
	if err := decodeObject(body, &d); err != nil {
		return nil, fmt.Errorf("metadata of the authorization server: %w", err)
	}
	// As text, without any normalisation: two issuers may differ by a slash.
	if d.Issuer != issuer {
		return nil, fmt.Errorf("%w: the metadata of %q is of another issuer, %q", ErrUntrusted, printable(issuer, 200), printable(d.Issuer, 200))
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
		if err := f.checkEndpoint(e.name, e.text); err != nil {
			return nil, err
		}
	}
	return &d, nil
}

// canonicalServer parses the URL of an MCP endpoint and returns it in the form in which it is compared and sent as resource.
// See https://modelcontextprotocol.io/specification/2026-07-28/basic/authorization#canonical-server-uri.
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
		return nil, fmt.Errorf("the server's URL has dots for a segment of its path")
	}
	if u.Path == "/" {
		u.Path, u.RawPath = "", ""
	}
	return u, nil
}

// canonicalHost returns the host in lower case, without the port if it is the scheme's.
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

// originOf returns scheme and host of a URL in the form in which they are compared.
func originOf(u *url.URL) string {
	v := *u
	v.Scheme = strings.ToLower(v.Scheme)
	return v.Scheme + "://" + canonicalHost(&v)
}

// checkResource says whether metadata that names this resource may be used for a server: it must be the server, or contain it. See
// https://www.rfc-editor.org/rfc/rfc9728#section-3.3.
func checkResource(resource string, server *url.URL) error {
	mismatch := fmt.Errorf("%w: the metadata is for the resource %q, not for this server", ErrUntrusted, printable(resource, 200))
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
