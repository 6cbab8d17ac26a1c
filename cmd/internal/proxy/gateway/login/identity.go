package login

import (
	"cmp"
	"context"
	"crypto/rand"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"sync"
	"time"

	"mcpwire/auth"
	"mcpwire/cmd/internal/proxy/gateway/config"
	"mcpwire/internal/net/loopback"
	"mcpwire/internal/net/neterror"
)

const (
	identityTimeout = 10 * time.Second
	// maxIdentityBytes limits a response of the issuer.
	maxIdentityBytes = 256 << 10
	// metadataTTL is how long the metadata of the issuer is used before it is requested again, and
	// metadataRetry the time between attempts if that fails.
	metadataTTL   = 10 * time.Minute
	metadataRetry = 30 * time.Second
	// maxCode limits a code or an error of the issuer.
	maxCode = 8 << 10
)

// An identity is how browsers log in to the gateway, by OpenID Connect
// (https://openid.net/specs/openid-connect-core-1_0.html#CodeFlowAuth).
type identity struct {
	config.LoginIdentity
	// secret is that of the gateway, or empty.
	secret      auth.Secret
	redirectURI string
	http        *http.Client

	mu    sync.Mutex
	meta  *oidcMetadata
	until time.Time
}

// oidcMetadata is the part of the issuer's metadata that is used
// (https://openid.net/specs/openid-connect-discovery-1_0.html#ProviderMetadata).
type oidcMetadata struct {
	Issuer        string   `json:"issuer"`
	Authorization string   `json:"authorization_endpoint"`
	Token         string   `json:"token_endpoint"`
	JWKS          string   `json:"jwks_uri"`
	AuthMethods   []string `json:"token_endpoint_auth_methods_supported"`
	IssInResponse bool     `json:"authorization_response_iss_parameter_supported"`

	verifier auth.Verifier
}

func newIdentity(o *config.LoginIdentity, secret auth.Secret, rt http.RoundTripper, redirectURI string) *identity {
	i := &identity{LoginIdentity: *o, secret: secret, redirectURI: redirectURI}
	i.Claim = cmp.Or(i.Claim, "sub") // some issuers have another subject for each client
	i.http = &http.Client{Transport: rt, Timeout: identityTimeout, CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
	return i
}

// userOf returns the user of a principal.
func (i *identity) userOf(p *auth.Principal) (string, error) {
	if p.Issuer != i.Issuer {
		return "", errors.New("the caller's token is not from the issuer that users log in with")
	}
	value := p.Subject
	if i.Claim != "sub" {
		value = ""
		_ = json.Unmarshal(p.Claims[i.Claim], &value) // it stays empty unless the claim is a text
	}
	if value == "" {
		return "", fmt.Errorf("the token has no claim %q, which identifies the user", i.Claim)
	}
	return userText(p.Issuer, value), nil
}

// metadata returns the metadata of the issuer. If it cannot be requested again, it returns the last
// one.
func (i *identity) metadata(ctx context.Context) (*oidcMetadata, error) {
	i.mu.Lock()
	defer i.mu.Unlock()
	if i.meta != nil && time.Now().Before(i.until) {
		return i.meta, nil
	}
	meta, err := i.fetchMetadata(ctx)
	switch {
	case err == nil:
		i.meta, i.until = meta, time.Now().Add(metadataTTL)
	case i.meta == nil:
		return nil, err
	default:
		i.until = time.Now().Add(metadataRetry)
	}
	return i.meta, nil
}

func (i *identity) fetchMetadata(ctx context.Context) (*oidcMetadata, error) {
	issuer, err := url.Parse(i.Issuer)
	if err != nil {
		return nil, errors.New("the issuer is not a URL")
	}
	root, path := issuer.Scheme+"://"+issuer.Host, strings.TrimSuffix(issuer.EscapedPath(), "/")
	var meta oidcMetadata
	for _, address := range []string{root + path + "/.well-known/openid-configuration", root + "/.well-known/oauth-authorization-server" + path} {
		var req *http.Request
		if req, err = http.NewRequestWithContext(ctx, http.MethodGet, address, nil); err != nil {
			return nil, err
		}
		var status int
		var body []byte
		if status, body, err = i.do(req); err != nil {
			return nil, fmt.Errorf("metadata of the issuer: %w", err)
		}
		if status != http.StatusOK {
			err = fmt.Errorf("metadata of the issuer: status %d", status)
		} else {
			err = json.Unmarshal(body, &meta)
		}
		if err == nil {
			return &meta, i.check(&meta)
		}
	}
	return nil, err
}

// check checks metadata, and adds the verifier.
func (i *identity) check(m *oidcMetadata) (err error) {
	if m.Issuer != i.Issuer {
		return errors.New("the metadata of the issuer is that of another one")
	}
	for _, text := range []string{m.Authorization, m.Token, m.JWKS} {
		u, err := url.Parse(text)
		if err != nil || u.Host == "" || u.User != nil || u.Scheme != "https" && !(u.Scheme == "http" && loopback.IsHost(u.Hostname())) {
			return errors.New("the metadata of the issuer has an endpoint that is missing or not https")
		}
	}
	// ID tokens name the client in aud, and need no other claim for it. So any claim that is always
	// there will do.
	m.verifier, err = auth.NewJWT(&auth.JWTOptions{Issuer: i.Issuer, Audiences: []string{i.ID}, JWKSURL: m.JWKS, ClientIDClaims: []string{"iss"}, HTTPClient: i.http})
	return err
}

// do sends a request and reads the response.
func (i *identity) do(req *http.Request) (status int, body []byte, err error) {
	req.Header.Set("Accept", "application/json")
	resp, err := i.http.Do(req)
	if err != nil {
		return 0, nil, neterror.WithoutURL(err)
	}
	defer resp.Body.Close()
	body, err = io.ReadAll(io.LimitReader(resp.Body, maxIdentityBytes+1))
	if err == nil && len(body) > maxIdentityBytes {
		err = errors.New("the response is too long")
	}
	return resp.StatusCode, body, err
}

// An identification is one login of a browser at the issuer.
type identification struct {
	meta                   *oidcMetadata
	state, nonce, verifier string
}

// begin returns a new login with the URL to send the browser to.
func (i *identity) begin(ctx context.Context) (*identification, string, error) {
	meta, err := i.metadata(ctx)
	if err != nil {
		return nil, "", err
	}
	id := &identification{meta: meta, state: rand.Text(), nonce: rand.Text(), verifier: rand.Text() + rand.Text()}
	sum := sha256.Sum256([]byte(id.verifier))
	u, err := url.Parse(meta.Authorization)
	if err != nil {
		return nil, "", err
	}
	q := u.Query()
	for name, value := range map[string]string{
		"response_type": "code", "client_id": i.ID, "redirect_uri": i.redirectURI, "scope": strings.Join(append([]string{"openid"}, i.Scopes...), " "),
		"state": id.state, "nonce": id.nonce, "code_challenge": base64.RawURLEncoding.EncodeToString(sum[:]), "code_challenge_method": "S256",
	} {
		q.Set(name, value)
	}
	u.RawQuery = q.Encode()
	return id, u.String(), nil
}

// errRefused means that the issuer did not let the user log in.
var errRefused = errors.New("the authorization server did not let you log in")

// finish returns the user that has logged in, from the query of the response. Its state was
// checked.
func (i *identity) finish(ctx context.Context, id *identification, q url.Values) (user string, err error) {
	for _, name := range []string{"state", "iss", "code", "error"} {
		if len(q[name]) > 1 || len(q.Get(name)) > maxCode {
			return "", errors.New("the response is malformed")
		}
	}
	switch {
	case q.Has("iss") && q.Get("iss") != i.Issuer, !q.Has("iss") && id.meta.IssInResponse:
		return "", errors.New("the response is from another authorization server")
	case q.Has("error"):
		return "", errRefused
	case q.Get("code") == "":
		return "", errors.New("the response has no code")
	}
	token, err := i.redeem(ctx, id, q.Get("code"))
	if err != nil {
		return "", err
	}
	p, err := id.meta.verifier.Verify(ctx, token)
	if err != nil {
		return "", fmt.Errorf("the ID token: %w", err)
	}
	return i.checkToken(id, p)
}

// checkToken checks the claims of a verified ID token that access tokens do not have
// (https://openid.net/specs/openid-connect-core-1_0.html#IDTokenValidation).
func (i *identity) checkToken(id *identification, p *auth.Principal) (string, error) {
	text := func(name string) (value string) {
		_ = json.Unmarshal(p.Claims[name], &value) // it stays empty unless the claim is a text
		return value
	}
	if subtle.ConstantTimeCompare([]byte(text("nonce")), []byte(id.nonce)) != 1 {
		return "", errors.New("the ID token belongs to another login: its nonce differs")
	}
	var several []string
	_ = json.Unmarshal(p.Claims["aud"], &several) // one audience is a text
	if _, has := p.Claims["azp"]; (has || len(several) > 1) && text("azp") != i.ID {
		return "", errors.New("the ID token is for another client")
	}
	return i.userOf(p)
}

// redeem exchanges a code for an ID token.
func (i *identity) redeem(ctx context.Context, id *identification, code string) (string, error) {
	form := url.Values{"grant_type": {"authorization_code"}, "code": {code}, "redirect_uri": {i.redirectURI}, "code_verifier": {id.verifier}}
	methods := id.meta.AuthMethods
	basic := !i.secret.IsZero() && (methods == nil || slices.Contains(methods, "client_secret_basic"))
	if !basic {
		form.Set("client_id", i.ID)
		if !i.secret.IsZero() {
			form.Set("client_secret", i.secret.Reveal())
		}
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, id.meta.Token, strings.NewReader(form.Encode()))
	if err != nil {
		return "", err
	}
	req.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	if basic { // https://www.rfc-editor.org/rfc/rfc6749#section-2.3.1
		req.SetBasicAuth(url.QueryEscape(i.ID), url.QueryEscape(i.secret.Reveal()))
	}
	status, body, err := i.do(req)
	if err != nil {
		return "", fmt.Errorf("token endpoint: %w", err)
	}
	var answer struct {
		IDToken string `json:"id_token"`
	}
	if status/100 != 2 || json.Unmarshal(body, &answer) != nil || answer.IDToken == "" {
		return "", fmt.Errorf("the token endpoint of the issuer answered with status %d and no ID token", status)
	}
	return answer.IDToken, nil
}
