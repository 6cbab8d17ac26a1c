package oauth

import (
	"cmp"
	"context"
	"crypto"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/rand"
	"crypto/rsa"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/go-jose/go-jose/v4"

	"mcpwire/auth"
)

// A Grant is how a client gets its first token: [AuthorizationCode], [ClientCredentials],
// [JWTBearer], [EnterpriseManaged], [TokenExchange] or [Preissued].
type Grant interface {
	// check reports mistakes in the options.
	check(*ClientOptions) error
	// tokens gets tokens and returns them with their client id.
	tokens(ctx context.Context, f *flow) (*Tokens, string, error)
}

// A flow is one attempt to get tokens.
type flow struct {
	client    *Client
	discovery *discovery
	// scopes are the scopes to request. Nil means the authorization server's default.
	scopes []string
	// proof may be nil.
	proof *proofKey
	// subject is the token to exchange. It is empty unless the grant is [TokenExchange].
	subject auth.Secret
}

// form returns the common parameters of token requests.
func (f *flow) form(grantType string) url.Values {
	form := url.Values{"grant_type": {grantType}}
	if f.discovery.resource != "" {
		form.Set("resource", f.discovery.resource)
	}
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

// ClientCredentials is a grant for clients that act for themselves, not for a user. They
// authenticate with [ClientOptions.ClientSecret] or [ClientOptions.ClientKey]. See
// https://modelcontextprotocol.io/extensions/auth/oauth-client-credentials.
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

// needIssuer requires ClientIssuer for grants without a user, who would see the authorization
// server.
func needIssuer(o *ClientOptions) error {
	if o.ClientIssuer == "" {
		return errors.New("this grant needs ClientIssuer: credentials are for one authorization server")
	}
	return nil
}

// An AssertionRequest says what an assertion is for.
type AssertionRequest struct {
	// Issuer and TokenEndpoint belong to the authorization server, Resource is the MCP server. An
	// assertion's audience is Issuer.
	Issuer, TokenEndpoint, Resource string
}

// JWTBearer is a grant for workloads with a JWT from their platform. See
// https://www.rfc-editor.org/rfc/rfc7523#section-2.1. Each assertion is sent once: if it is
// rejected, the request that needed a token fails.
type JWTBearer struct {
	// Assertion returns a JWT. It is called for each token request, by one goroutine at a time for
	// each server.
	Assertion func(context.Context, AssertionRequest) (auth.Secret, error)
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
		return nil, "", fmt.Errorf("get an assertion: %w", err)
	}
	return f.exchangeAssertion(ctx, assertion)
}

// optionalCredentials returns the configured credentials, or nil for a client without an id, which
// does not authenticate.
func (f *flow) optionalCredentials() (*credentials, error) {
	if f.client.opts.ClientID == "" {
		return nil, nil
	}
	return f.client.configuredCredentials(f.discovery.as)
}

// exchangeAssertion exchanges an assertion for tokens.
func (f *flow) exchangeAssertion(ctx context.Context, assertion auth.Secret) (*Tokens, string, error) {
	cred, err := f.optionalCredentials()
	if err != nil {
		return nil, "", err
	}
	form := f.form(grantJWTBearer)
	form.Set("assertion", assertion.Reveal())
	t, err := f.request(ctx, form, cred)
	return t, f.client.opts.ClientID, err
}

// EnterpriseManaged is a grant for users whose organization controls access. The organization's
// identity provider turns the token from the user's login into an assertion for the MCP server's
// authorization server, where [ClientOptions.ClientID] is registered. See
// https://modelcontextprotocol.io/extensions/auth/enterprise-managed-authorization.
type EnterpriseManaged struct {
	// TokenEndpoint is the identity provider's token endpoint. It is required.
	TokenEndpoint string
	// Issuer is the identity provider's issuer, the audience of ClientKey's assertions. It is
	// required only with ClientKey.
	Issuer string
	// ClientID, ClientSecret and ClientKey are the client's credentials at the identity provider.
	ClientID     string
	ClientSecret auth.Secret
	ClientKey    *ClientKey
	// SubjectToken returns the token from the user's login. It is called for each exchange.
	SubjectToken func(context.Context) (auth.Secret, error)
	// SubjectTokenType is the type of that token. Empty means
	// "urn:ietf:params:oauth:token-type:id_token".
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
		return nil, "", fmt.Errorf("get the user's token: %w", err)
	}
	form := f.form(grantTokenExchange)
	form.Set("requested_token_type", tokenTypeIDJAG)
	form.Set("audience", f.discovery.issuer)
	form.Set("subject_token", subject.Reveal())
	form.Set("subject_token_type", cmp.Or(g.SubjectTokenType, tokenTypeIDToken))
	a, err := f.client.requestToken(ctx, &tokenRequest{endpoint: g.TokenEndpoint, issuer: g.Issuer, form: form, cred: g.credentials()})
	if err != nil {
		return nil, "", fmt.Errorf("identity provider: %w", err)
	}
	if a.IssuedType != tokenTypeIDJAG {
		return nil, "", fmt.Errorf("%w: the identity provider responded with a token of type %q", ErrUntrusted, printable(a.IssuedType, 64))
	}
	return f.exchangeAssertion(ctx, auth.NewSecret(a.AccessToken))
}

func (g EnterpriseManaged) credentials() *credentials {
	cred := &credentials{id: g.ClientID, secret: g.ClientSecret, key: g.ClientKey, method: authNone}
	switch {
	case g.ClientKey != nil:
		cred.method = authPrivateKeyJWT
	case !g.ClientSecret.IsZero():
		cred.method = authSecretBasic
	}
	return cred
}

// Preissued is a grant for tokens from elsewhere: a file, a command or the environment of a job. It
// uses no discovery and no store. If the server rejects a token, the client asks once more for a
// token; if it gets the same one, the caller gets the server's response.
type Preissued struct {
	// Token returns the token.
	Token func(context.Context) (auth.Secret, error)
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
		return nil, "", fmt.Errorf("get the token: %w", err)
	}
	if text := t.Reveal(); len(text) > maxTokenBytes || !isVisible(text) {
		return nil, "", errors.New("the token is empty, too long, or has invalid characters")
	}
	return &Tokens{Access: t, Type: "Bearer"}, "", nil
}

const (
	// maxTokenBytes limits the tokens that a client accepts.
	maxTokenBytes = 16 << 10
	// maxLifetime limits expires_in.
	maxLifetime = 10 * 365 * 24 * time.Hour
	// assertionLifetime is the lifetime of an assertion that authenticates the client.
	assertionLifetime = time.Minute
)

const assertionType = "urn:ietf:params:oauth:client-assertion-type:jwt-bearer"

// A ClientKey authenticates a client by private_key_jwt. See
// https://www.rfc-editor.org/rfc/rfc7523#section-2.2.
type ClientKey struct {
	// Key is an [*ecdsa.PrivateKey], an [*rsa.PrivateKey] or an [ed25519.PrivateKey].
	Key crypto.Signer
	// Algorithm is a JWS algorithm for the key, for example "ES256". Empty means, depending on the
	// key, ES256, ES384 or ES512, PS256, or EdDSA.
	Algorithm string
	// KeyID is sent as kid. Empty means none.
	KeyID string
}

// Format implements [fmt.Formatter] without revealing the key.
func (k *ClientKey) Format(f fmt.State, _ rune) { fmt.Fprint(f, "[redacted]") }

func (k *ClientKey) signer() (jose.Signer, error) {
	var fit []string
	switch key := k.Key.(type) {
	case *ecdsa.PrivateKey:
		fit = map[int][]string{256: {"ES256"}, 384: {"ES384"}, 521: {"ES512"}}[key.Curve.Params().BitSize]
	case *rsa.PrivateKey:
		fit = []string{"PS256", "RS256", "PS384", "PS512", "RS384", "RS512"}
	case ed25519.PrivateKey:
		fit = []string{"EdDSA"}
	}
	if len(fit) == 0 {
		return nil, errors.New("the client's key has an unsupported type")
	}
	alg := cmp.Or(k.Algorithm, fit[0])
	if !slices.Contains(fit, alg) {
		return nil, fmt.Errorf("the client's key is not for the algorithm %q", alg)
	}
	opts := (&jose.SignerOptions{}).WithType("JWT")
	if k.KeyID != "" {
		opts = opts.WithHeader("kid", k.KeyID)
	}
	return jose.NewSigner(jose.SigningKey{Algorithm: jose.SignatureAlgorithm(alg), Key: k.Key}, opts)
}

type assertionClaims struct {
	Issuer   string `json:"iss"`
	Subject  string `json:"sub"`
	Audience string `json:"aud"`
	ID       string `json:"jti"`
	IssuedAt int64  `json:"iat"`
	Expiry   int64  `json:"exp"`
}

// assertion returns an assertion that authenticates the client. Its audience is the issuer, so that
// no other authorization server can use it.
func (k *ClientKey) assertion(clientID, issuer string) (string, error) {
	signer, err := k.signer()
	if err != nil {
		return "", err
	}
	now := time.Now()
	return signClaims(signer, assertionClaims{clientID, clientID, issuer, rand.Text(), now.Unix(), now.Add(assertionLifetime).Unix()})
}

// A tokenRequest is a request to a token endpoint.
type tokenRequest struct {
	endpoint, issuer string
	form             url.Values
	// cred is nil for grants in which the client does not authenticate.
	cred *credentials
	// proof may be nil.
	proof *proofKey
}

// tokenResponse is a successful response. See https://www.rfc-editor.org/rfc/rfc6749#section-5.1.
type tokenResponse struct {
	AccessToken  string          `json:"access_token"`
	TokenType    string          `json:"token_type"`
	ExpiresIn    json.RawMessage `json:"expires_in"`
	RefreshToken string          `json:"refresh_token"`
	Scope        string          `json:"scope"`
	IssuedType   string          `json:"issued_token_type"`
	Error        json.RawMessage `json:"error"`
}

// requestToken sends the request. It repeats it if the authorization server requires a nonce in the
// proof.
func (c *Client) requestToken(ctx context.Context, r *tokenRequest) (*tokenResponse, error) {
	a, retry, err := c.sendTokenRequest(ctx, r)
	if retry {
		a, _, err = c.sendTokenRequest(ctx, r)
	}
	return a, err
}

func (c *Client) sendTokenRequest(ctx context.Context, r *tokenRequest) (a *tokenResponse, retry bool, err error) {
	u, err := url.Parse(r.endpoint)
	if err != nil {
		return nil, false, fmt.Errorf("%w: the token endpoint is not a URL", ErrUntrusted)
	}
	form, header := maps.Clone(r.form), http.Header{}
	if err := r.cred.authenticate(form, header, r.issuer); err != nil {
		return nil, false, err
	}
	owner := originOf(u) + " as"
	if r.proof != nil {
		proof, err := r.proof.proof(http.MethodPost, u, auth.Secret{}, c.nonces.get(owner))
		if err != nil {
			return nil, false, err
		}
		header.Set("DPoP", proof)
	}
	rep, err := c.fetch.post(ctx, r.endpoint, "application/x-www-form-urlencoded", []byte(form.Encode()), header)
	if err != nil {
		return nil, false, err
	}
	fresh := c.nonces.store(owner, rep.header)
	a = new(tokenResponse)
	decodeErr := decodeObject(rep.body, a)
	// Some servers report errors with status 200.
	if !rep.ok() || decodeErr == nil && a.AccessToken == "" && len(a.Error) > 0 {
		err := responseError(rep)
		return nil, r.proof != nil && fresh && isOAuthError(err, "use_dpop_nonce"), err
	}
	if decodeErr != nil {
		return nil, false, fmt.Errorf("response of the token endpoint: %w", decodeErr)
	}
	if len(a.AccessToken) > maxTokenBytes || !isVisible(a.AccessToken) || len(a.RefreshToken) > maxTokenBytes {
		return nil, false, fmt.Errorf("%w: the token endpoint's response has no usable access_token", ErrUntrusted)
	}
	return a, false, nil
}

// authenticate adds the client's authentication for the token endpoint.
func (cred *credentials) authenticate(form url.Values, header http.Header, issuer string) error {
	if cred == nil {
		return nil
	}
	switch cred.method {
	case authNone:
		if cred.id != "" {
			form.Set("client_id", cred.id)
		}
	case authSecretBasic:
		// Both are form-encoded first. See https://www.rfc-editor.org/rfc/rfc6749#section-2.3.1.
		text := url.QueryEscape(cred.id) + ":" + url.QueryEscape(cred.secret.Reveal())
		header.Set("Authorization", "Basic "+base64.StdEncoding.EncodeToString([]byte(text)))
	case authSecretPost:
		form.Set("client_id", cred.id)
		form.Set("client_secret", cred.secret.Reveal())
	case authPrivateKeyJWT:
		if cred.key == nil {
			return errors.New("no key to authenticate with")
		}
		assertion, err := cred.key.assertion(cred.id, issuer)
		if err != nil {
			return err
		}
		form.Set("client_id", cred.id)
		form.Set("client_assertion_type", assertionType)
		form.Set("client_assertion", assertion)
	default:
		return fmt.Errorf("unknown authentication method %q", cred.method)
	}
	return nil
}

// responseError returns the error of an error response.
func responseError(r *httpResponse) error {
	var body struct {
		Error       string `json:"error"`
		Description string `json:"error_description"`
	}
	if decodeObject(r.body, &body) != nil || body.Error == "" {
		return newOAuthError("status "+strconv.Itoa(r.status), "")
	}
	return newOAuthError(body.Error, body.Description)
}

// tokens returns the Tokens of the response to r.
func (a *tokenResponse) tokens(r *tokenRequest, mode DPoPMode) (*Tokens, error) {
	t := &Tokens{
		Access:   auth.NewSecret(a.AccessToken),
		Refresh:  auth.NewSecret(a.RefreshToken),
		Endpoint: r.endpoint,
		Resource: r.form.Get("resource"),
	}
	if r.cred != nil {
		t.AuthMethod = r.cred.method
	}
	switch {
	case strings.EqualFold(a.TokenType, "DPoP") && r.proof != nil:
		t.Type = "DPoP"
	case strings.EqualFold(a.TokenType, "Bearer") && mode != DPoPOn:
		t.Type = "Bearer"
	default:
		return nil, fmt.Errorf("%w: the token has type %q", ErrUntrusted, printable(a.TokenType, 64))
	}
	if life, ok := a.lifetime(); ok {
		t.Expiry = time.Now().Add(life)
	}
	t.Requested = parseScopes(r.form.Get("scope"))
	t.Granted = t.Requested
	if a.Scope != "" {
		t.Granted = parseScopes(a.Scope)
	}
	return t, nil
}

// lifetime parses expires_in, which is a number; some servers send a string.
func (a *tokenResponse) lifetime() (time.Duration, bool) {
	seconds, err := strconv.ParseFloat(strings.Trim(string(a.ExpiresIn), `"`), 64)
	if err != nil || seconds < 0 || seconds != seconds {
		return 0, false
	}
	return time.Duration(min(seconds, maxLifetime.Seconds()) * float64(time.Second)), true
}
