package auth

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"strings"
)

// A Grant is how a client gets its first token: [AuthorizationCode], [ClientCredentials], [JWTBearer], [EnterpriseManaged] or [Preissued].
type Grant interface {
	// check reports mistakes of the caller.
	check(*ClientOptions) error
	// tokens gets tokens and returns them with the client id that they are for.
	tokens(ctx context.Context, f *flow) (*Tokens, string, error)
}

// A flow is one attempt to get tokens.
type flow struct {
	client    *Client
	discovery *discovery
	// scopes are all that are to be asked for; nil to ask for none in particular.
	scopes []string
	// proof may be nil.
	proof *proofKey
}

// form returns what all token requests have.
func (f *flow) form(grantType string) url.Values {
	form := url.Values{"grant_type": {grantType}, "resource": {f.discovery.resource}}
	if len(f.scopes) > 0 {
		form.Set("scope", strings.Join(f.scopes, " "))
	}
	return form
}

// request gets tokens from the token endpoint of the authorization server.
func (f *flow) request(ctx context.Context, form url.Values, cred *credentials) (*Tokens, error) {
	r := &tokenRequest{endpoint: f.discovery.as.TokenEndpoint, issuer: f.discovery.issuer, form: form, cred: cred, proof: f.proof}
	a, err := f.client.requestToken(ctx, r)
	if err != nil {
		return nil, err
	}
	return a.tokens(r, f.client.opts.DPoP)
}

// ClientCredentials is for clients that act for themselves, not for a user. They authenticate with [ClientOptions.ClientSecret] or
// [ClientOptions.ClientKey]. See https://modelcontextprotocol.io/extensions/auth/oauth-client-credentials.
type ClientCredentials struct{}

func (ClientCredentials) check(o *ClientOptions) error {
	if o.ClientID == "" || o.ClientSecret.IsZero() && o.ClientKey == nil {
		return errors.New("client credentials need ClientID, and ClientSecret or ClientKey")
	}
	return needIssuer(o)
}

func (ClientCredentials) tokens(ctx context.Context, f *flow) (*Tokens, string, error) {
	cred, err := f.client.configuredCredentials(f.discovery.as)
	if err != nil {
		return nil, "", err
	}
	t, err := f.request(ctx, f.form("client_credentials"), cred)
	return t, cred.id, err
}

// needIssuer is for grants without a user, who would see where they are being led.
func needIssuer(o *ClientOptions) error {
	if o.ClientIssuer == "" {
		return errors.New("this grant needs ClientIssuer: credentials are for one authorization server")
	}
	return nil
}

// An AssertionRequest says what an assertion is for.
type AssertionRequest struct {
	// Issuer, TokenEndpoint and Resource are those of the authorization server and of the MCP server. An assertion's audience is Issuer.
	Issuer, TokenEndpoint, Resource string
}

// JWTBearer is for workloads that a platform vouches for with a JWT. See https://www.rfc-editor.org/rfc/rfc7523#section-2.1. Each assertion is sent once: if
// it is refused, the request that needed a token fails.
type JWTBearer struct {
	// Assertion returns a JWT. It is called for each token request, and by one goroutine at a time for a server.
	Assertion func(context.Context, AssertionRequest) (Secret, error)
}

func (g JWTBearer) check(o *ClientOptions) error {
	if g.Assertion == nil {
		return errors.New("JWTBearer has no source of assertions")
	}
	return needIssuer(o)
}

const grantJWTBearer = "urn:ietf:params:oauth:grant-type:jwt-bearer"

func (g JWTBearer) tokens(ctx context.Context, f *flow) (*Tokens, string, error) {
	assertion, err := g.Assertion(ctx, AssertionRequest{f.discovery.issuer, f.discovery.as.TokenEndpoint, f.discovery.resource})
	if err != nil {
		return nil, "", fmt.Errorf("getting an assertion: %w", err)
	}
	return f.exchangeAssertion(ctx, assertion)
}

// exchangeAssertion trades an assertion for tokens. A client without an id or without credentials does not authenticate.
func (f *flow) exchangeAssertion(ctx context.Context, assertion Secret) (*Tokens, string, error) {
	var cred *credentials
	if f.client.opts.ClientID != "" {
		var err error
		if cred, err = f.client.configuredCredentials(f.discovery.as); err != nil {
			return nil, "", err
		}
	}
	form := f.form(grantJWTBearer)
	form.Set("assertion", assertion.Reveal())
	t, err := f.request(ctx, form, cred)
	return t, f.client.opts.ClientID, err
}

// EnterpriseManaged is for users whose organisation decides what they may use: the organisation's identity provider turns the token that the user logged in
// with into an assertion for the MCP server's authorization server, where [ClientOptions.ClientID] is registered.
// See https://modelcontextprotocol.io/extensions/auth/enterprise-managed-authorization.
type EnterpriseManaged struct {
	// TokenEndpoint is the identity provider's. Required.
	TokenEndpoint string
	// Issuer is the identity provider's, and needed only with ClientKey, whose assertions are for it.
	Issuer string
	// ClientID, ClientSecret and ClientKey are the client's at the identity provider.
	ClientID     string
	ClientSecret Secret
	ClientKey    *ClientKey
	// SubjectToken returns the token that the user logged in with. It is called for each exchange.
	SubjectToken func(context.Context) (Secret, error)
	// SubjectTokenType is "urn:ietf:params:oauth:token-type:id_token" if it is "".
	SubjectTokenType string
}

const (
	grantTokenExchange = "urn:ietf:params:oauth:grant-type:token-exchange"
	tokenTypeIDToken   = "urn:ietf:params:oauth:token-type:id_token"
	tokenTypeIDJAG     = "urn:ietf:params:oauth:token-type:id-jag"
)

func (g EnterpriseManaged) check(o *ClientOptions) error {
	if g.TokenEndpoint == "" || g.ClientID == "" || g.SubjectToken == nil {
		return errors.New("EnterpriseManaged needs TokenEndpoint, ClientID and SubjectToken")
	}
	if g.ClientKey != nil {
		if g.Issuer == "" {
			return errors.New("EnterpriseManaged needs Issuer with ClientKey")
		}
		if _, err := g.ClientKey.signer(); err != nil {
			return err
		}
	}
	return needIssuer(o)
}

func (g EnterpriseManaged) tokens(ctx context.Context, f *flow) (*Tokens, string, error) {
	subject, err := g.SubjectToken(ctx)
	if err != nil {
		return nil, "", fmt.Errorf("getting the user's token: %w", err)
	}
	form := f.form(grantTokenExchange)
	form.Set("requested_token_type", tokenTypeIDJAG)
	form.Set("audience", f.discovery.issuer)
	form.Set("subject_token", subject.Reveal())
	form.Set("subject_token_type", g.SubjectTokenType)
	if g.SubjectTokenType == "" {
		form.Set("subject_token_type", tokenTypeIDToken)
	}
	a, err := f.client.requestToken(ctx, &tokenRequest{endpoint: g.TokenEndpoint, issuer: g.Issuer, form: form, cred: g.credentials()})
	if err != nil {
		return nil, "", fmt.Errorf("identity provider: %w", err)
	}
	if a.IssuedType != tokenTypeIDJAG {
		return nil, "", fmt.Errorf("%w: the identity provider answered with a token of the type %q", ErrUntrusted, printable(a.IssuedType, 64))
	}
	return f.exchangeAssertion(ctx, NewSecret(a.AccessToken))
}

func (g EnterpriseManaged) credentials() *credentials {
	cred := &credentials{id: g.ClientID, secret: g.ClientSecret, key: g.ClientKey, method: "none"}
	switch {
	case g.ClientKey != nil:
		cred.method = "private_key_jwt"
	case !g.ClientSecret.IsZero():
		cred.method = "client_secret_basic"
	}
	return cred
}

// Preissued is for tokens that come from elsewhere: from a file, a command or the environment of a job. Nothing is discovered and nothing stored. A token
// that the server refuses is asked for once more, and if it is the same the server's response is the caller's.
type Preissued struct {
	// Token returns the token.
	Token func(context.Context) (Secret, error)
}

func (g Preissued) check(*ClientOptions) error {
	if g.Token == nil {
		return errors.New("Preissued has no source of tokens")
	}
	return nil
}

func (g Preissued) tokens(ctx context.Context, _ *flow) (*Tokens, string, error) {
	t, err := g.Token(ctx)
	if err != nil {
		return nil, "", fmt.Errorf("getting the token: %w", err)
	}
	if text := t.Reveal(); len(text) > maxTokenBytes || !isVisible(text) {
		return nil, "", errors.New("what should be a token has other characters than tokens have, or is empty or too long")
	}
	return &Tokens{Access: t, Type: "Bearer"}, "", nil
}
