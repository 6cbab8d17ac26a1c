package oauth

import (
	"cmp"
	"container/list"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"net/url"
	"sync"
	"time"

	"mcpwire/auth"
)

// TokenExchange is a grant for servers that call another server on behalf of their callers. The
// authorization server [ClientOptions.ClientIssuer] exchanges the token of the caller for one that
// is for the other server: see https://www.rfc-editor.org/rfc/rfc8693#section-2. So the other
// server never gets the caller's token.
//
// A client has a separate token for each caller's token, at most 4096 of them in memory and none in
// the store. It gets a token before the first request, and uses no metadata of the other server.
// Refresh tokens are not used: access ends when the caller's token can no longer be exchanged.
// [ClientOptions.ClientID] may be empty if the authorization server needs no authentication.
type TokenExchange struct {
	// SubjectToken returns the token of the caller, from the context of a request to the other
	// server. It is called for each request. In a server whose guard has
	// auth.GuardOptions.KeepToken, it returns [auth.TokenOf]. It must not return an empty token.
	SubjectToken func(context.Context) (auth.Secret, error)
	// SubjectTokenType is the type of that token. Empty means
	// "urn:ietf:params:oauth:token-type:access_token".
	SubjectTokenType string
	// Audience and Resource name the other server to the authorization server: Audience by a name
	// that both know, Resource by a URL. If both are empty, the resource is the URL of the other
	// server.
	Audience, Resource string
}

const (
	tokenTypeAccess = "urn:ietf:params:oauth:token-type:access_token"
	tokenTypeJWT    = "urn:ietf:params:oauth:token-type:jwt"

	// maxExchanged limits the callers' tokens whose exchanged tokens are kept, for each server.
	maxExchanged = 4096
	// issuerTTL is how long the metadata of the authorization server is used.
	issuerTTL = 10 * time.Minute
)

func (g TokenExchange) check(o *ClientOptions) error {
	if g.SubjectToken == nil {
		return errors.New("TokenExchange has no source of subject tokens")
	}
	if o.ClientIssuer == TrustFirstIssuer {
		return errors.New("TokenExchange needs ClientIssuer: the callers' tokens are for one authorization server")
	}
	if g.Resource != "" {
		// https://www.rfc-editor.org/rfc/rfc8693#section-2.1
		if u, err := url.Parse(g.Resource); err != nil || !u.IsAbs() || u.Fragment != "" {
			return errors.New("TokenExchange.Resource is not an absolute URL without a fragment")
		}
	}
	return needIssuer(o)
}

func (g TokenExchange) tokens(ctx context.Context, f *flow) (*Tokens, string, error) {
	cred, err := f.optionalCredentials()
	if err != nil {
		return nil, "", err
	}
	form := f.form(grantTokenExchange)
	form.Set("requested_token_type", tokenTypeAccess)
	form.Set("subject_token", f.subject.Reveal())
	form.Set("subject_token_type", cmp.Or(g.SubjectTokenType, tokenTypeAccess))
	if g.Audience != "" {
		form.Set("audience", g.Audience)
	}
	r := &tokenRequest{endpoint: f.discovery.as.TokenEndpoint, issuer: f.discovery.issuer, form: form, cred: cred, proof: f.proof}
	a, err := f.client.requestToken(ctx, r)
	if err != nil {
		return nil, "", err
	}
	if a.IssuedType != tokenTypeAccess && a.IssuedType != tokenTypeJWT {
		return nil, "", fmt.Errorf("%w: the authorization server responded with a token of type %q", ErrUntrusted, printable(a.IssuedType, 64))
	}
	if a.AccessToken == f.subject.Reveal() {
		return nil, "", fmt.Errorf("%w: the authorization server responded with the caller's own token", ErrUntrusted)
	}
	a.RefreshToken = ""
	t, err := a.tokens(r, f.client.opts.DPoP)
	return t, f.client.opts.ClientID, err
}

// subjects holds the state for each caller's token.
type subjects struct {
	grant TokenExchange

	mu     sync.Mutex
	byHash map[[sha256.Size]byte]*list.Element
	// recent holds the *serverAuth of each caller's token, the most recent first.
	recent list.List
	// issuer is the metadata of the authorization server, until issuerUntil.
	issuer      *issuerDocument
	issuerUntil time.Time
}

// forRequest returns the state for the caller of a request. It is s itself unless the grant is
// [TokenExchange].
func (s *serverAuth) forRequest(ctx context.Context) (*serverAuth, error) {
	if s.subjects == nil {
		return s, nil
	}
	token, err := s.subjects.grant.SubjectToken(ctx)
	if err == nil && token.IsZero() {
		err = errors.New("the request has none")
	}
	if err != nil {
		return nil, authorizationError("token", s.name, s.client.opts.ClientIssuer, fmt.Errorf("get the caller's token: %w", err))
	}
	hash := sha256.Sum256([]byte(token.Reveal()))
	t := s.subjects
	t.mu.Lock()
	defer t.mu.Unlock()
	if e, ok := t.byHash[hash]; ok {
		t.recent.MoveToFront(e)
		return e.Value.(*serverAuth), nil
	}
	for t.recent.Len() >= maxExchanged {
		oldest := t.recent.Remove(t.recent.Back()).(*serverAuth)
		delete(t.byHash, sha256.Sum256([]byte(oldest.subject.Reveal())))
	}
	of := s.client.newServerAuth(s.server, s.name)
	of.subject, of.subjects = token, t
	t.byHash[hash] = t.recent.PushFront(of)
	return of, nil
}

// currentExchanged returns the token for the next request of a caller. It gets one if there is none
// or it is about to expire.
func (s *serverAuth) currentExchanged(ctx context.Context) (*token, error) {
	usable := func(t *token) bool { return t != nil && !t.needsRenewal(time.Now()) }
	t, _ := s.snapshot()
	if usable(t) {
		return t, nil
	}
	failures := s.failuresSoFar()
	release, err := s.lockRenewal(ctx)
	if err != nil {
		return nil, err
	}
	defer release()
	if t, _ = s.snapshot(); usable(t) {
		return t, nil
	}
	s.mu.Lock()
	failure := s.lastFailure
	failed := s.failureCount != failures || time.Now().Before(s.failedUntil)
	s.mu.Unlock()
	if !failed {
		failure = s.obtain(ctx, authRequirement{}, false)
		s.recordFailure(ctx, failure, nil)
	}
	if failure == nil {
		t, _ = s.snapshot()
		return t, nil
	}
	if t == nil || t.expired(time.Now()) || ctx.Err() != nil {
		return nil, failure
	}
	later := *t
	later.renewAt = time.Now().Add(outageBackoff)
	s.install(&later)
	return &later, nil
}

// exchangeDiscovery returns where to exchange tokens. The other server has no say in it.
func (s *serverAuth) exchangeDiscovery(ctx context.Context) (*discovery, error) {
	t, issuer := s.subjects, s.client.opts.ClientIssuer
	d := &discovery{resource: t.grant.Resource, issuer: issuer}
	if t.grant.Resource == "" && t.grant.Audience == "" {
		d.resource = s.name
	}
	t.mu.Lock()
	d.as = t.issuer
	stale := !time.Now().Before(t.issuerUntil)
	t.mu.Unlock()
	if !stale {
		return d, nil
	}
	as, err := s.client.fetch.issuerMetadata(ctx, issuer)
	if err != nil {
		return nil, authorizationError("discover", s.name, issuer, err)
	}
	d.as = as
	t.mu.Lock()
	defer t.mu.Unlock()
	t.issuer, t.issuerUntil = as, time.Now().Add(issuerTTL)
	return d, nil
}

// clear forgets all tokens.
func (t *subjects) clear() {
	t.mu.Lock()
	defer t.mu.Unlock()
	clear(t.byHash)
	t.recent.Init()
	t.issuerUntil = time.Time{}
}
