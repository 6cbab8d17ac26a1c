package auth

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"sync"
	"time"
)

const (
	maxIntrospectionCache = 60 * time.Second
	maxIntrospections     = 64       // at once
	maxIntrospectedBytes  = 16 << 20 // of the claims that are cached
)

// IntrospectionOptions are the options of NewIntrospection. All but the last four are required.
type IntrospectionOptions struct {
	// Endpoint is the URL of the issuer's introspection endpoint.
	Endpoint string
	// Issuer is the authorization server's identifier. The response's iss must be equal.
	Issuer string
	// Audiences are the names of this server. The response's aud must contain one exactly, as with
	// [JWTOptions.Audiences]. A response without aud is rejected: such a token may have been issued
	// for anyone.
	Audiences []string
	// ClientID and ClientSecret are this server's credentials at the issuer. They are sent in the
	// Authorization header.
	ClientID     string
	ClientSecret Secret
	// SecretInBody sends the credentials in the body of the request instead (client_secret_post).
	SecretInBody bool
	// IssuerOptional accepts responses without iss. It is for endpoints that know only this
	// issuer's tokens.
	IssuerOptional bool
	// CacheTTL limits how long a response is used, and so how long a revoked token still works. The
	// maximum is 60 s, or the token's expiry. Zero means 60 s; a negative value disables the cache.
	CacheTTL time.Duration
	// HTTPClient sends the requests. Nil means a new client. Its cookies and its handling of
	// redirects are not used: redirects fail.
	HTTPClient *http.Client
}

// An introspectionVerifier verifies tokens by asking their issuer.
type introspectionVerifier struct {
	opts   IntrospectionOptions
	client *http.Client
	slots  chan struct{}

	mu    sync.Mutex
	cache recentCache[[sha256.Size]byte, cachedPrincipal]
	// calls are the pending requests.
	calls map[[sha256.Size]byte]*introspectionCall
}

type cachedPrincipal struct {
	principal *Principal
	until     time.Time
}

// An introspectionCall is one request to the issuer, which several callers may wait for.
type introspectionCall struct {
	// done is closed when the other fields are set.
	done      chan struct{}
	principal *Principal
	err       error
}

// NewIntrospection returns a [Verifier] that asks the token's issuer
// (https://www.rfc-editor.org/rfc/rfc7662). It starts no goroutines and need not be closed.
//
// It caches up to 10,000 positive responses by the token's hash. It sends one request at a time for
// each token, and at most 64 at a time in all. It waits at most 10 s for the issuer, even if the
// context of Verify ends earlier.
func NewIntrospection(o *IntrospectionOptions) (Verifier, error) {
	if o == nil {
		o = &IntrospectionOptions{}
	}
	v := &introspectionVerifier{
		opts: *o, client: newFetchClient(o.HTTPClient), slots: make(chan struct{}, maxIntrospections),
		calls: make(map[[sha256.Size]byte]*introspectionCall),
	}
	v.cache.max, v.cache.maxBytes = maxTracked, maxIntrospectedBytes
	v.opts.Audiences = unique(o.Audiences)
	for _, address := range []string{o.Endpoint, o.Issuer} {
		if _, err := checkEndpoint(address); err != nil {
			return nil, fmt.Errorf("auth: introspection: %w", err)
		}
	}
	switch {
	case len(v.opts.Audiences) == 0:
		return nil, errors.New("auth: introspection: no audiences: name at least one that tokens must have")
	case o.ClientID == "" || o.ClientSecret.IsZero():
		return nil, errors.New("auth: introspection needs credentials of this server")
	case o.CacheTTL == 0 || o.CacheTTL > maxIntrospectionCache:
		v.opts.CacheTTL = maxIntrospectionCache
	}
	return v, nil
}

// Verify implements Verifier.
func (in *introspectionVerifier) Verify(ctx context.Context, token string) (*Principal, error) {
	if len(token) > maxToken {
		return nil, invalid("it is too long")
	}
	key, now := sha256.Sum256([]byte(token)), time.Now()
	in.mu.Lock()
	if c, ok := in.cache.get(key); ok {
		if now.Before(c.until) {
			in.mu.Unlock()
			return c.principal, nil
		}
		in.cache.remove(key)
	}
	if call := in.calls[key]; call != nil {
		in.mu.Unlock()
		select {
		case <-call.done:
			return call.principal, call.err
		case <-ctx.Done():
			return nil, unavailable("waiting for introspection", ctx.Err())
		}
	}
	call := &introspectionCall{done: make(chan struct{}), err: unavailable("introspection", errors.New("it panicked"))}
	in.calls[key] = call
	in.mu.Unlock()
	defer in.complete(key, call, now)
	// Other waiting requests must not fail if this request is canceled.
	detached, cancel := context.WithTimeout(context.WithoutCancel(ctx), fetchTimeout)
	defer cancel()
	call.principal, call.err = in.introspect(detached, token)
	return call.principal, call.err
}

// complete returns the result of a call to its waiters, and caches it if it is positive.
func (in *introspectionVerifier) complete(key [sha256.Size]byte, call *introspectionCall, sent time.Time) {
	in.mu.Lock()
	defer in.mu.Unlock()
	delete(in.calls, key)
	close(call.done)
	if call.err != nil || in.opts.CacheTTL < 0 {
		return
	}
	until := sent.Add(in.opts.CacheTTL)
	if exp := call.principal.Expires; !exp.IsZero() && exp.Before(until) {
		until = exp
	}
	size := 0
	for name, value := range call.principal.Claims {
		size += len(name) + len(value)
	}
	in.cache.put(key, cachedPrincipal{call.principal, until}, size)
}

// introspect sends the request and checks the response.
func (in *introspectionVerifier) introspect(ctx context.Context, token string) (*Principal, error) {
	select {
	case in.slots <- struct{}{}:
		defer func() { <-in.slots }()
	case <-ctx.Done():
		return nil, unavailable("waiting for introspection", ctx.Err())
	}
	form := url.Values{"token": {token}, "token_type_hint": {"access_token"}}
	if in.opts.SecretInBody {
		form.Set("client_id", in.opts.ClientID)
		form.Set("client_secret", in.opts.ClientSecret.Reveal())
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, in.opts.Endpoint, strings.NewReader(form.Encode()))
	if err != nil {
		return nil, unavailable("introspection", err)
	}
	req.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	if !in.opts.SecretInBody {
		// Both are form-encoded first. See https://www.rfc-editor.org/rfc/rfc6749#section-2.3.1.
		req.SetBasicAuth(url.QueryEscape(in.opts.ClientID), url.QueryEscape(in.opts.ClientSecret.Reveal()))
	}
	body, contentType, err := fetchBody(in.client, req)
	if err != nil {
		return nil, unavailable("introspection", err)
	}
	answer, ok := parseObject(body)
	if !ok || contentType != "application/json" {
		return nil, unavailable("introspection", errors.New("the response is not a JSON object"))
	}
	return in.principalOf(answer)
}

// principalOf returns the principal of the issuer's response.
func (in *introspectionVerifier) principalOf(answer claimSet) (*Principal, error) {
	switch active := string(answer["active"]); active {
	case "true":
	case "false":
		return nil, invalid("token is not active")
	default:
		return nil, unavailable("introspection", errors.New("the response does not say whether the token is active"))
	}
	if iss, _ := answer.str("iss"); iss != in.opts.Issuer && !(in.opts.IssuerOptional && !answer.has("iss")) {
		return nil, invalid("wrong issuer")
	}
	if aud, _ := answer.strs("aud"); !slices.ContainsFunc(aud, func(a string) bool { return slices.Contains(in.opts.Audiences, a) }) {
		return nil, invalid("wrong audience")
	}
	expires, reason := answer.checkDates(time.Now(), maxLeeway/2)
	if reason != "" {
		return nil, invalid(reason)
	}
	p := &Principal{Issuer: in.opts.Issuer, Expires: expires, Scopes: answer.scopes(), Claims: map[string]json.RawMessage(answer)}
	p.Subject, _ = answer.str("sub")
	p.ClientID, _ = answer.str("client_id")
	if p.Subject == "" && p.ClientID == "" {
		return nil, invalid("no subject and no client id")
	}
	var ok bool
	if p.KeyThumbprint, ok = answer.confirmation(); !ok {
		return nil, invalid("unsupported binding of the token")
	}
	kind, ok := answer.str("token_type")
	if !ok && answer.has("token_type") && string(answer["token_type"]) != "null" {
		return nil, invalid("token_type is not a string")
	}
	switch strings.ToLower(kind) {
	case "", "bearer", "access_token":
	case "dpop":
		if p.KeyThumbprint == "" {
			return nil, invalid("the token is bound to an unknown key")
		}
	default: // such as refresh_token and id_token
		return nil, invalid("not an access token")
	}
	return p, nil
}
