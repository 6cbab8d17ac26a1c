package main

import (
	"context"
	"crypto"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"net/http"

	"mcpwire/auth"
	"mcpwire/client"
	"mcpwire/oauth"
)

// metadataURL identifies the client to the suite; nobody fetches the document. redirectURI is where
// the suite sends the user; nobody listens there.
const (
	metadataURL = "https://conformance-test.local/client-metadata.json"
	redirectURI = "http://localhost:3000/callback"
)

// A login is the part of a scenario's context that is about authorization.
type login struct {
	ClientID     string `json:"client_id"`
	ClientSecret string `json:"client_secret"`
	Issuer       string `json:"issuer"`
	PrivateKey   string `json:"private_key_pem"`
	Algorithm    string `json:"signing_algorithm"`
	WorkloadJWT  string `json:"valid_jwt"`

	IDPClientID      string `json:"idp_client_id"`
	IDPIDToken       string `json:"idp_id_token"`
	IDPIssuer        string `json:"idp_issuer"`
	IDPTokenEndpoint string `json:"idp_token_endpoint"`
}

// loginOptions returns the options of the OAuth client for a login.
type loginOptions func(*login) (*oauth.ClientOptions, error)

// loginPart returns the part for an authorization scenario: log in as the scenario requires,
// connect, and call all tools.
func loginPart(name string) part {
	var options loginOptions = userOptions
	switch name {
	case "pre-registration":
		options = preregistered
	case "client-credentials-basic":
		options = machineOptions
	case "client-credentials-jwt":
		options = keyOptions
	case "enterprise-managed-authorization", "cross-app-access-complete-flow":
		options = enterpriseOptions
	case "wif-jwt-bearer":
		options = workloadOptions
	case "dpop", "dpop-nonce":
		options = boundOptions
	}
	return func(ctx context.Context, s *stage) error {
		var l login
		if s.text != nil {
			if err := s.context(&l); err != nil {
				return err
			}
		}
		if len(s.via) > 0 {
			return s.playVia(ctx, &l)
		}
		opts, err := options(&l)
		if err != nil {
			return err
		}
		if s.http, err = authorized(s.url, opts); err != nil {
			return err
		}
		return s.with(ctx, func(c *client.Client) error { return callAll(ctx, c) })
	}
}

// callAll calls all tools without arguments.
func callAll(ctx context.Context, c *client.Client) error {
	list, err := tools(ctx, c)
	if err != nil {
		return err
	}
	for _, tool := range list {
		if err := call(ctx, c, tool.Name, struct{}{}); err != nil {
			return err
		}
	}
	return nil
}

// authorized returns an HTTP client that logs in when the server requires it. It allows HTTP
// without TLS, because the suite runs on the loopback interface.
func authorized(server string, opts *oauth.ClientOptions) (*http.Client, error) {
	opts.AllowLoopbackHTTP = true
	c, err := oauth.NewClient(opts)
	if err != nil {
		return nil, err
	}
	transport, err := c.Transport(server, nil)
	if err != nil {
		return nil, err
	}
	return &http.Client{Transport: transport}, nil
}

// userOptions returns the options for a user who agrees to everything.
func userOptions(*login) (*oauth.ClientOptions, error) {
	return &oauth.ClientOptions{
		Grant:               oauth.AuthorizationCode{Prompter: oauth.ManualPrompter{RedirectURI: redirectURI, Visit: visit}},
		ClientIDMetadataURL: metadataURL,
		Registration:        oauth.Registration{ClientName: "mcpwire conformance client", RedirectURIs: []string{redirectURI}},
	}, nil
}

// visit acts as the user's browser: it opens the authorization server's page, which redirects at
// once.
func visit(ctx context.Context, address string) (string, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, address, nil)
	if err != nil {
		return "", err
	}
	browser := &http.Client{CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
	resp, err := browser.Do(req)
	if err != nil {
		return "", err
	}
	if err := resp.Body.Close(); err != nil {
		return "", err
	}
	back, err := resp.Location()
	if err != nil {
		return "", fmt.Errorf("the authorization server responds with status %d: %w", resp.StatusCode, err)
	}
	return back.String(), nil
}

// preregistered returns the options for a client that the authorization server knows by its ID and
// secret.
func preregistered(l *login) (*oauth.ClientOptions, error) {
	opts, err := userOptions(l)
	if err != nil {
		return nil, err
	}
	opts.ClientIDMetadataURL = ""
	identify(opts, l)
	return opts, nil
}

// identify sets the client ID and secret of the scenario. Version 0.1 of the suite doesn't say
// which issuer they are for.
func identify(opts *oauth.ClientOptions, l *login) {
	opts.ClientID, opts.ClientSecret, opts.ClientIssuer = l.ClientID, auth.NewSecret(l.ClientSecret), l.Issuer
	if opts.ClientIssuer == "" {
		opts.ClientIssuer = oauth.TrustFirstIssuer
	}
}

// machineOptions returns the options for a client that acts for itself.
func machineOptions(l *login) (*oauth.ClientOptions, error) {
	opts := &oauth.ClientOptions{Grant: oauth.ClientCredentials{}}
	identify(opts, l)
	return opts, nil
}

// keyOptions returns the options for a client that acts for itself and authenticates with a key.
func keyOptions(l *login) (*oauth.ClientOptions, error) {
	key, err := parseKey(l.PrivateKey)
	if err != nil {
		return nil, err
	}
	opts, err := machineOptions(l)
	if err != nil {
		return nil, err
	}
	opts.ClientKey = &oauth.ClientKey{Key: key, Algorithm: l.Algorithm}
	return opts, nil
}

func parseKey(text string) (crypto.Signer, error) {
	block, _ := pem.Decode([]byte(text))
	if block == nil {
		return nil, errors.New("private_key_pem is not PEM")
	}
	key, err := x509.ParsePKCS8PrivateKey(block.Bytes)
	if err != nil {
		return nil, err
	}
	signer, ok := key.(crypto.Signer)
	if !ok {
		return nil, fmt.Errorf("private_key_pem is a %T, which does not sign", key)
	}
	return signer, nil
}

// enterpriseOptions returns the options for a user whose identity provider decides.
func enterpriseOptions(l *login) (*oauth.ClientOptions, error) {
	opts := &oauth.ClientOptions{Grant: oauth.EnterpriseManaged{
		TokenEndpoint: l.IDPTokenEndpoint,
		Issuer:        l.IDPIssuer,
		ClientID:      l.IDPClientID,
		SubjectToken:  func(context.Context) (auth.Secret, error) { return auth.NewSecret(l.IDPIDToken), nil },
	}}
	identify(opts, l)
	return opts, nil
}

// workloadOptions returns the options for a workload whose platform vouches for it.
func workloadOptions(l *login) (*oauth.ClientOptions, error) {
	opts := &oauth.ClientOptions{Grant: oauth.JWTBearer{
		Assertion: func(context.Context, oauth.AssertionRequest) (auth.Secret, error) {
			return auth.NewSecret(l.WorkloadJWT), nil
		},
	}, ClientIssuer: oauth.TrustFirstIssuer}
	return opts, nil
}

// boundOptions returns the options for a user whose tokens are bound to a key.
func boundOptions(l *login) (*oauth.ClientOptions, error) {
	opts, err := userOptions(l)
	if err != nil {
		return nil, err
	}
	opts.DPoP = oauth.DPoPOn
	return opts, nil
}
