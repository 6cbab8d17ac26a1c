package auth

import (
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
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/go-jose/go-jose/v4"
)

const (
	// maxTokenBytes limits tokens that a client takes.
	maxTokenBytes = 16 << 10
	// maxLifetime limits what a token endpoint says in expires_in.
	maxLifetime = 10 * 365 * 24 * time.Hour
	// assertionLifetime is how long an assertion can be used that authenticates the client.
	assertionLifetime = time.Minute
)

const assertionType = "urn:ietf:params:oauth:client-assertion-type:jwt-bearer"

// A ClientKey authenticates a client by private_key_jwt. See https://www.rfc-editor.org/rfc/rfc7523#section-2.2.
type ClientKey struct {
	// Key is an [*ecdsa.PrivateKey], an [*rsa.PrivateKey] or an [ed25519.PrivateKey].
	Key crypto.Signer
	// Algorithm is one of JWS that fits the key, as "ES256". "" means ES256, ES384 or ES512, PS256 or EdDSA, as the key is.
	Algorithm string
	// KeyID is sent as kid unless it is "".
	KeyID string
}

// Format implements [fmt.Formatter] and does not tell the key.
func (k *ClientKey) Format(f fmt.State, _ rune) { fmt.Fprint(f, redacted) }

func (k *ClientKey) signer() (jose.Signer, error) {
	alg := k.Algorithm
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
		return nil, errors.New("the client's key is of a kind that is not supported")
	}
	if alg == "" {
		alg = fit[0]
	}
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

// assertion makes one that authenticates the client. Its audience is the issuer, so that no other authorization server can make use of it.
func (k *ClientKey) assertion(clientID, issuer string) (string, error) {
	signer, err := k.signer()
	if err != nil {
		return "", err
	}
	now := time.Now()
	return signClaims(signer, assertionClaims{clientID, clientID, issuer, rand.Text(), now.Unix(), now.Add(assertionLifetime).Unix()})
}

// A tokenRequest is one to a token endpoint.
type tokenRequest struct {
	endpoint, issuer string
	form             url.Values
	// cred may be nil, for grants in which the client does not authenticate.
	cred *credentials
	// proof may be nil.
	proof *proofKey
}

// tokenResponse is a successful answer. See https://www.rfc-editor.org/rfc/rfc6749#section-5.1.
type tokenResponse struct {
	AccessToken  string          `json:"access_token"`
	TokenType    string          `json:"token_type"`
	ExpiresIn    json.RawMessage `json:"expires_in"`
	RefreshToken string          `json:"refresh_token"`
	Scope        string          `json:"scope"`
	IssuedType   string          `json:"issued_token_type"`
}

// requestToken sends the request, once more if the authorization server wants its nonce in the proof.
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
	form, header := cloneForm(r.form), http.Header{}
	if err := r.cred.authenticate(form, header, r.issuer); err != nil {
		return nil, false, err
	}
	owner := originOf(u) + " as"
	if r.proof != nil {
		proof, err := r.proof.proof(http.MethodPost, u, Secret{}, c.nonces.get(owner))
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
	if rep.status != http.StatusOK {
		err := responseError(rep)
		return nil, r.proof != nil && fresh && isOAuthError(err, "use_dpop_nonce"), err
	}
	a = new(tokenResponse)
	if err := decodeObject(rep.body, a); err != nil {
		return nil, false, fmt.Errorf("answer of the token endpoint: %w", err)
	}
	if len(a.AccessToken) > maxTokenBytes || !isVisible(a.AccessToken) || len(a.RefreshToken) > maxTokenBytes {
		return nil, false, fmt.Errorf("%w: the token endpoint answered without a usable access_token", ErrUntrusted)
	}
	return a, false, nil
}

func cloneForm(form url.Values) url.Values {
	out := make(url.Values, len(form)+3)
	for name, values := range form {
		out[name] = slices.Clone(values)
	}
	return out
}

// authenticate adds what tells the token endpoint who the client is.
func (cred *credentials) authenticate(form url.Values, header http.Header, issuer string) error {
	if cred == nil {
		return nil
	}
	switch cred.method {
	case "none":
		if cred.id != "" {
			form.Set("client_id", cred.id)
		}
	case "client_secret_basic":
		// Both are form-encoded first. See https://www.rfc-editor.org/rfc/rfc6749#section-2.3.1.
		text := url.QueryEscape(cred.id) + ":" + url.QueryEscape(cred.secret.Reveal())
		header.Set("Authorization", "Basic "+base64.StdEncoding.EncodeToString([]byte(text)))
	case "client_secret_post":
		form.Set("client_id", cred.id)
		form.Set("client_secret", cred.secret.Reveal())
	case "private_key_jwt":
		if cred.key == nil {
			return errors.New("there is no key to authenticate with")
		}
		assertion, err := cred.key.assertion(cred.id, issuer)
		if err != nil {
			return err
		}
		form.Set("client_id", cred.id)
		form.Set("client_assertion_type", assertionType)
		form.Set("client_assertion", assertion)
	default:
		return fmt.Errorf("unknown way to authenticate %q", cred.method)
	}
	return nil
}

// responseError makes an error of an answer that is one.
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

// tokens makes Tokens of the answer to r.
func (a *tokenResponse) tokens(r *tokenRequest, mode DPoPMode) (*Tokens, error) {
	t := &Tokens{
		Access:   NewSecret(a.AccessToken),
		Refresh:  NewSecret(a.RefreshToken),
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
		return nil, fmt.Errorf("%w: the token is of the type %q", ErrUntrusted, printable(a.TokenType, 64))
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

// lifetime reads expires_in, which is a number; some servers send it as a string.
func (a *tokenResponse) lifetime() (time.Duration, bool) {
	seconds, err := strconv.ParseFloat(strings.Trim(string(a.ExpiresIn), `"`), 64)
	if err != nil || seconds < 0 || seconds != seconds {
		return 0, false
	}
	return time.Duration(min(seconds, maxLifetime.Seconds()) * float64(time.Second)), true
}
