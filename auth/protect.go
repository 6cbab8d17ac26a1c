package auth

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"
)

// Protect returns a handler that passes requests with a good token on to next. The others are answered here:
//
//   - 401 without a token, and with one that is not valid, or whose proof is not,
//   - 400 for what is malformed: several Authorization headers, a token in the query, a text that cannot be a token,
//   - 403 if one of [GuardOptions.RequiredScopes] is missing,
//   - 429 after too many failures, see [FailureLimit],
//   - 503 if the token cannot be verified at the moment.
//
// Each request is judged by itself; there are no sessions. The context of next's request has the principal, for [PrincipalOf], [Require] and [Deny]. Its
// headers have neither the token nor the proof, so that they cannot be passed on to anyone else.
//
// Preflight requests of browsers have no token and get a 401: what answers them has to be in front.
// See https://modelcontextprotocol.io/specification/2026-07-28/basic/authorization#token-requirements.
func (g *Guard) Protect(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		in, f := g.admit(r)
		if f != nil {
			g.refuse(w, r, f)
			return
		}
		if in.nonce != "" {
			w.Header().Set("DPoP-Nonce", in.nonce)
		}
		ctx := WithPrincipal(r.Context(), in.principal)
		ctx = context.WithValue(ctx, guardKey{}, presented{g, in.scheme})
		r = r.WithContext(ctx) // a copy
		r.Header = maps.Clone(r.Header)
		r.Header.Del("Authorization")
		r.Header.Del("DPoP")
		next.ServeHTTP(w, r)
	})
}

// admitted is what is known of a request that is let through.
type admitted struct {
	principal *Principal
	scheme    scheme
	nonce     string // a new one for the client; may be empty
}

// admit decides on a request.
func (g *Guard) admit(r *http.Request) (admitted, *refusal) {
	s, token, f := g.credentials(r)
	if f != nil {
		return admitted{}, f
	}
	digest, addr := sha256.Sum256([]byte(token)), g.clientAddr(r)
	switch wait, bad := g.limits.wait(addr, digest); {
	case bad:
		return admitted{}, &refusal{status: http.StatusUnauthorized, scheme: s, code: "invalid_token", err: errTooMany}
	case wait > 0:
		return admitted{}, &refusal{status: http.StatusTooManyRequests, after: wait, err: errTooMany}
	}
	p, err := g.verify(r.Context(), token)
	if err == nil && s == schemeBearer && p.KeyThumbprint != "" {
		err = invalid("it is bound to a key, but came without a proof")
	} else if err == nil && s == schemeDPoP && p.KeyThumbprint == "" {
		err = invalid("it came with a proof, but is not bound to a key")
	}
	if err != nil {
		if !errors.Is(err, ErrInvalidToken) {
			return admitted{}, &refusal{status: http.StatusServiceUnavailable, after: retryUnavailable, err: err}
		}
		// What is wrong with how a token was presented says nothing of the token.
		g.limits.failed(addr, digest, p == nil)
		return admitted{}, &refusal{status: http.StatusUnauthorized, scheme: s, code: "invalid_token", err: err}
	}
	in := admitted{principal: p, scheme: s}
	if s == schemeDPoP {
		if in.nonce, f = g.checkProof(r, token, p.KeyThumbprint); f != nil {
			if f.code == "invalid_dpop_proof" {
				g.limits.failed(addr, digest, false)
			}
			return admitted{}, f
		}
	}
	g.limits.succeeded(digest)
	if missing := p.missing(g.required); len(missing) > 0 {
		err := &ScopeError{Scopes: g.required, Missing: missing}
		return admitted{}, &refusal{status: http.StatusForbidden, scheme: s, code: "insufficient_scope", nonce: in.nonce, err: err}
	}
	return in, nil
}

var errTooMany = errors.New("too many failures")

// verify asks the verifier, and does not rely on it for what can be seen from the principal.
func (g *Guard) verify(ctx context.Context, token string) (*Principal, error) {
	found, err := g.verifier.Verify(ctx, token)
	switch {
	case err != nil:
		return nil, err
	case found == nil:
		return nil, errNoPrincipal
	case !found.Expires.IsZero() && !time.Now().Before(found.Expires):
		return nil, invalid("it has expired")
	}
	p := *found
	p.tree = g.tree
	return &p, nil
}

// checkProof returns a new nonce if the client should get one.
func (g *Guard) checkProof(r *http.Request, token, thumbprint string) (nonce string, _ *refusal) {
	stale, err := g.dpop.check(r, g.publicURL(r), token, thumbprint)
	if g.dpop.nonces != nil && (stale || errors.Is(err, errNonce)) {
		nonce = g.dpop.nonces.current(time.Now())
	}
	switch {
	case err == nil:
		return nonce, nil
	case errors.Is(err, errNonce):
		return "", &refusal{status: http.StatusUnauthorized, scheme: schemeDPoP, code: "use_dpop_nonce", nonce: nonce, err: err}
	case errors.Is(err, ErrReplayQuota):
		return "", &refusal{status: http.StatusTooManyRequests, after: retryUnavailable, err: err}
	case errors.Is(err, ErrUnavailable):
		return "", &refusal{status: http.StatusServiceUnavailable, after: retryUnavailable, err: err}
	}
	return "", &refusal{status: http.StatusUnauthorized, scheme: schemeDPoP, code: "invalid_dpop_proof", nonce: nonce, err: err}
}

// credentials returns the token of a request, whose text is checked, and how it was presented.
func (g *Guard) credentials(r *http.Request) (scheme, string, *refusal) {
	malformed := func(err error) (scheme, string, *refusal) {
		return "", "", &refusal{status: http.StatusBadRequest, code: "invalid_request", err: err}
	}
	if r.URL.RawQuery != "" {
		query, err := url.ParseQuery(r.URL.RawQuery)
		if query.Has("access_token") {
			return malformed(errors.New("a token in the query"))
		}
		if err != nil && strings.Contains(r.URL.RawQuery, "access_token") {
			return malformed(errors.New("a query that cannot be parsed"))
		}
	}
	headers := r.Header.Values("Authorization")
	if len(headers) == 0 {
		return "", "", &refusal{status: http.StatusUnauthorized, err: ErrUnauthenticated}
	}
	if len(headers) > 1 {
		return malformed(errors.New("several Authorization headers"))
	}
	s, token, err := parseAuthorization(headers[0])
	if err != nil {
		return malformed(err)
	}
	offered := s == schemeBearer && (g.dpop == nil || !g.dpop.required) || s == schemeDPoP && g.dpop != nil
	if !offered {
		return "", "", &refusal{status: http.StatusUnauthorized, err: errors.New("another scheme of authorization")}
	}
	return s, token, nil
}

// parseAuthorization reads an Authorization header. The token is "" if the scheme is none of ours.
// See https://www.rfc-editor.org/rfc/rfc6750#section-2.1 and https://www.rfc-editor.org/rfc/rfc9449#section-7.1.
func parseAuthorization(header string) (scheme, string, error) {
	name, token, _ := strings.Cut(header, " ")
	known := []scheme{schemeBearer, schemeDPoP}
	i := slices.IndexFunc(known, func(s scheme) bool { return strings.EqualFold(string(s), name) })
	if i < 0 {
		return "", "", nil
	}
	token = strings.TrimLeft(token, " ")
	if len(token) > maxToken {
		return "", "", fmt.Errorf("a token of more than %d bytes", maxToken)
	}
	if !validToken(token) {
		return "", "", errors.New("a text that cannot be a token")
	}
	return known[i], token, nil
}

// validToken tells whether s is a b64token.
func validToken(s string) bool {
	body := strings.TrimRight(s, "=")
	for i := range len(body) {
		c := body[i]
		if (c < '0' || c > '9') && (c < 'A' || c > 'Z') && (c < 'a' || c > 'z') && strings.IndexByte("-._~+/", c) < 0 {
			return false
		}
	}
	return body != ""
}
