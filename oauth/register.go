package oauth

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"mcpwire/auth"
	"mcpwire/internal/net/loopback"
)

// TrustFirstIssuer as [ClientOptions.ClientIssuer] binds the credentials to the authorization
// server that the MCP server names first. A malicious server gets them that way; use it only for
// servers that you trust as much as the authorization server.
const TrustFirstIssuer = "*"

// Registration describes the client to authorization servers, in dynamic registrations and in its
// metadata document. See https://www.rfc-editor.org/rfc/rfc7591#section-2.
type Registration struct {
	// ClientName is shown to users. Empty means "MCP client".
	ClientName string
	// ClientURI is the URL of a page about the client. It may be empty.
	ClientURI string
	// RedirectURIs are the redirect URIs of a client that is registered by hand or by a metadata
	// document. Ports of loopback addresses are ignored. Nil means /callback on 127.0.0.1 and ::1.
	// Dynamic registration uses the actual URI instead.
	RedirectURIs []string
	// ApplicationType is "native" or "web". Empty means "native".
	ApplicationType string
	// SoftwareID and SoftwareVersion may be empty.
	SoftwareID, SoftwareVersion string
	// InitialAccessToken is for authorization servers that restrict registration. It is sent only
	// to the issuer [ClientOptions.ClientIssuer].
	InitialAccessToken auth.Secret
}

// clientDocument is a client's metadata, in a registration and in a metadata document.
type clientDocument struct {
	ClientID        string   `json:"client_id,omitempty"`
	ClientName      string   `json:"client_name"`
	ClientURI       string   `json:"client_uri,omitempty"`
	RedirectURIs    []string `json:"redirect_uris"`
	GrantTypes      []string `json:"grant_types"`
	ResponseTypes   []string `json:"response_types"`
	AuthMethod      string   `json:"token_endpoint_auth_method"`
	ApplicationType string   `json:"application_type"`
	SoftwareID      string   `json:"software_id,omitempty"`
	SoftwareVersion string   `json:"software_version,omitempty"`
	DPoPBound       bool     `json:"dpop_bound_access_tokens,omitempty"`
}

func (r *Registration) document(redirectURIs []string, method string) clientDocument {
	return clientDocument{
		ClientName:      cmp.Or(r.ClientName, "MCP client"),
		ClientURI:       r.ClientURI,
		RedirectURIs:    redirectURIs,
		GrantTypes:      []string{"authorization_code", "refresh_token"},
		ResponseTypes:   []string{"code"},
		AuthMethod:      method,
		ApplicationType: cmp.Or(r.ApplicationType, "native"),
		SoftwareID:      r.SoftwareID,
		SoftwareVersion: r.SoftwareVersion,
	}
}

func (r *Registration) check() error {
	if r.ApplicationType != "" && r.ApplicationType != "native" && r.ApplicationType != "web" {
		return errors.New(`the application type is neither "native" nor "web"`)
	}
	for _, u := range r.RedirectURIs {
		if err := checkRedirectURI(u); err != nil {
			return err
		}
	}
	return nil
}

// redirectURIs returns the redirect URIs that the client is known with.
func (r *Registration) redirectURIs() []string {
	if r.RedirectURIs != nil {
		return r.RedirectURIs
	}
	return []string{"http://127.0.0.1/callback", "http://[::1]/callback"}
}

// checkRedirectURI checks that a redirect URI has a loopback host or is https, as the specification
// requires.
func checkRedirectURI(text string) error {
	u, err := url.Parse(text)
	if err != nil || u.Host == "" || u.User != nil || u.Fragment != "" ||
		u.Scheme != "https" && !(u.Scheme == "http" && loopback.IsHost(u.Hostname())) {
		return fmt.Errorf("the redirect URI %q is neither https nor on this machine", text)
	}
	return nil
}

// sameRedirect reports whether an authorization server that knows one redirect URI accepts the
// other: ports of loopback addresses are ignored. See
// https://www.rfc-editor.org/rfc/rfc8252#section-7.3.
func sameRedirect(known, used string) bool {
	if known == used {
		return true
	}
	k, err := url.Parse(known)
	u, err2 := url.Parse(used)
	if err != nil || err2 != nil || k.Scheme != "http" || !loopback.IsHost(k.Hostname()) {
		return false
	}
	k.Host, u.Host = k.Hostname(), u.Hostname()
	return k.String() == u.String()
}

// checkMetadataURL checks a client id that is a URL. See
// https://datatracker.ietf.org/doc/draft-ietf-oauth-client-id-metadata-document.
func checkMetadataURL(text string) error {
	u, err := url.Parse(text)
	if err != nil || u.Scheme != "https" || u.Host == "" || u.User != nil || strings.Contains(text, "#") ||
		strings.Trim(u.Path, "/") == "" || hasDotSegment(u.EscapedPath()) {
		return fmt.Errorf("the client's metadata URL %q is not https with a path, or has a password, a fragment or a dot segment", text)
	}
	return nil
}

// credentials are a client's credentials at one authorization server.
type credentials struct {
	id     string
	secret auth.Secret
	key    *ClientKey
	// method is how the client authenticates at the token endpoint.
	method       string
	redirectURIs []string
	// dynamic says that the authorization server assigned the id, and might have forgotten it.
	dynamic bool
}

// configuredCredentials returns the credentials of the options, or nil if they have none for this
// authorization server. findIssuer ensures that the server is the one they belong to.
func (c *Client) configuredCredentials(as *issuerDocument) (*credentials, error) {
	o := &c.opts
	var cred *credentials
	switch {
	case o.ClientID != "":
		cred = &credentials{id: o.ClientID, secret: o.ClientSecret, key: o.ClientKey}
	case o.ClientIDMetadataURL != "" && as.ClientIDMetadata:
		cred = &credentials{id: o.ClientIDMetadataURL, key: o.ClientKey}
	default:
		return nil, nil
	}
	cred.redirectURIs = o.Registration.redirectURIs()
	var err error
	cred.method, err = c.authMethod(as, cred)
	return cred, err
}

// authMethod chooses how to authenticate at the token endpoint.
func (c *Client) authMethod(as *issuerDocument, cred *credentials) (string, error) {
	if c.opts.TokenAuthMethod != "" {
		return c.opts.TokenAuthMethod, nil
	}
	var can []string
	switch {
	case cred.key != nil:
		can = []string{authPrivateKeyJWT}
	case !cred.secret.IsZero():
		can = []string{authSecretBasic, authSecretPost}
	default:
		return authNone, nil
	}
	if as.TokenAuthMethods == nil {
		return can[0], nil
	}
	for _, m := range can {
		if slices.Contains(as.TokenAuthMethods, m) {
			return m, nil
		}
	}
	return "", fmt.Errorf("%w: it supports no authentication method that fits the client's credentials", ErrRefused)
}

// registeredCredentials returns the credentials of an earlier registration, or nil.
func (c *Client) registeredCredentials(ctx context.Context, issuer string) (*credentials, error) {
	r, err := c.opts.Store.Load(ctx, c.registrationKey(issuer))
	if errors.Is(err, ErrNotStored) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	rc := r.Client
	if rc == nil || rc.ID == "" || !rc.SecretExpiry.IsZero() && !time.Now().Before(rc.SecretExpiry) {
		return nil, nil
	}
	return &credentials{id: rc.ID, secret: rc.Secret, method: rc.AuthMethod, redirectURIs: rc.RedirectURIs, dynamic: true}, nil
}

func (c *Client) registrationKey(issuer string) RecordKey {
	return RecordKey{Issuer: issuer, Account: c.opts.Account}
}

type registrationResponse struct {
	ClientID     string `json:"client_id"`
	ClientSecret string `json:"client_secret"`
	SecretExpiry int64  `json:"client_secret_expires_at"`
	AuthMethod   string `json:"token_endpoint_auth_method"`
}

// register registers the client for a redirect URI and stores the result.
func (c *Client) register(ctx context.Context, d *discovery, redirectURI string) (*credentials, error) {
	if d.as.RegistrationEndpoint == "" {
		return nil, fmt.Errorf("%w: %q does not register clients; configure a client id", ErrUnregistered, printable(d.issuer, 200))
	}
	method := registrationMethod(d.as.TokenAuthMethods)
	doc := c.opts.Registration.document([]string{redirectURI}, method)
	doc.DPoPBound = c.opts.DPoP == DPoPOn
	body, err := json.Marshal(doc)
	if err != nil {
		return nil, fmt.Errorf("encode the registration: %w", err)
	}
	header := http.Header{}
	if t := c.opts.Registration.InitialAccessToken; !t.IsZero() && c.opts.ClientIssuer == d.issuer {
		header.Set("Authorization", "Bearer "+t.Reveal())
	}
	r, err := c.fetch.post(ctx, d.as.RegistrationEndpoint, "application/json", body, header)
	if err != nil {
		return nil, err
	}
	if !r.ok() {
		return nil, responseError(r)
	}
	cred, expiry, err := decodeRegistration(r.body, method)
	if err != nil {
		return nil, err
	}
	cred.redirectURIs = []string{redirectURI}
	rc := &RegisteredClient{ID: cred.id, Secret: cred.secret, SecretExpiry: expiry, AuthMethod: cred.method, RedirectURIs: cred.redirectURIs}
	if err := c.opts.Store.Save(ctx, c.registrationKey(d.issuer), &Record{Client: rc}); err != nil {
		return nil, err
	}
	c.opts.Logger.InfoContext(ctx, "client registered", "issuer", printable(d.issuer, 200))
	return cred, nil
}

// registrationMethod returns the authentication method to register for: without a secret if
// possible.
func registrationMethod(supported []string) string {
	for _, m := range []string{authNone, authSecretBasic, authSecretPost} {
		if slices.Contains(supported, m) {
			return m
		}
	}
	return authNone
}

func decodeRegistration(body []byte, requested string) (*credentials, time.Time, error) {
	var a registrationResponse
	if err := decodeObject(body, &a); err != nil {
		return nil, time.Time{}, fmt.Errorf("registration: %w", err)
	}
	a.AuthMethod = cmp.Or(a.AuthMethod, requested)
	var expiry time.Time
	if a.SecretExpiry > 0 {
		expiry = time.Unix(a.SecretExpiry, 0)
	}
	switch {
	case a.ClientID == "" || len(a.ClientID) > 4096 || printable(a.ClientID, 4096) != a.ClientID:
		return nil, expiry, fmt.Errorf("%w: the registration has no usable client_id", ErrUntrusted)
	case a.AuthMethod == authNone:
		// Do not store an unused secret.
		a.ClientSecret, expiry = "", time.Time{}
	case a.AuthMethod != authSecretBasic && a.AuthMethod != authSecretPost:
		return nil, expiry, fmt.Errorf("%w: the registration requires the client to authenticate with %q", ErrRefused, printable(a.AuthMethod, 64))
	case a.ClientSecret == "":
		return nil, expiry, fmt.Errorf("%w: the registration has no client_secret", ErrUntrusted)
	}
	return &credentials{id: a.ClientID, secret: auth.NewSecret(a.ClientSecret), method: a.AuthMethod, dynamic: true}, expiry, nil
}

// MetadataDocument returns the document to serve at [ClientOptions.ClientIDMetadataURL], as
// application/json. It lists loopback redirect URIs without ports, since every authorization server
// must accept any port there (https://www.rfc-editor.org/rfc/rfc8252#section-7.3).
func (c *Client) MetadataDocument() ([]byte, error) {
	if c.opts.ClientIDMetadataURL == "" {
		return nil, errors.New("the client has no metadata URL")
	}
	method := authNone
	if c.opts.ClientKey != nil {
		method = authPrivateKeyJWT
	}
	d := c.opts.Registration.document(c.opts.Registration.redirectURIs(), method)
	d.ClientID = c.opts.ClientIDMetadataURL
	return json.MarshalIndent(d, "", "  ")
}
