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
		adm, rejected := g.admit(r)
		if rejected != nil {
			g.reject(w, r, rejected)
			return
		}
		if adm.nonce != "" {
			w.Header().Set("DPoP-Nonce", adm.nonce)
		}
		ctx := WithPrincipal(r.Context(), adm.principal)
		ctx = context.WithValue(ctx, guardKey{}, passedGuard{g, adm.scheme})
		r = r.WithContext(ctx) // a copy
		r.Header = maps.Clone(r.Header)
		r.Header.Del("Authorization")
		r.Header.Del("DPoP")
		next.ServeHTTP(w, r)
	})
}

// admission is what is known of a request that is let through.
type admission struct {
	principal *Principal
	scheme    scheme
	nonce     string // a new one for the client; may be empty
}

// admit decides on a request.
func (g *Guard) admit(r *http.Request) (admission, *rejection) {
	s, token, rejected := g.credentials(r)
	if rejected != nil {
		return admission{}, rejected
	}
	digest, addr := sha256.Sum256([]byte(token)), g.clientAddr(r)
	switch wait, bad := g.failures.wait(addr, digest); {
	case bad:
		return admission{}, &rejection{status: http.StatusUnauthorized, scheme: s, code: "invalid_token", err: errTooManyFailures}
	case wait > 0:
		return admission{}, &rejection{status: http.StatusTooManyRequests, retryAfter: wait, err: errTooManyFailures}
	}
	p, err := g.verify(r.Context(), token)
	if err == nil && s == schemeBearer && p.KeyThumbprint != "" {
		err = invalid("it is bound to a key, but came without a proof")
	} else if err == nil && s == schemeDPoP && p.KeyThumbprint == "" {
		err = invalid("it came with a proof, but is not bound to a key")
	}
	if err != nil {
		if !errors.Is(err, ErrInvalidToken) {
			return admission{}, &rejection{status: http.StatusServiceUnavailable, retryAfter: retryUnavailable, err: err}
		}
		// What is wrong with how a token was presented says nothing of the token.
		g.failures.addFailure(addr, digest, p == nil)
		return admission{}, &rejection{status: http.StatusUnauthorized, scheme: s, code: "invalid_token", err: err}
	}
	adm := admission{principal: p, scheme: s}
	if s == schemeDPoP {
		if adm.nonce, rejected = g.checkProof(r, token, p.KeyThumbprint); rejected != nil {
			if rejected.code == "invalid_dpop_proof" {
				g.failures.addFailure(addr, digest, false)
			}
			return admission{}, rejected
		}
	}
	g.failures.addSuccess(digest)
	if missing := p.missing(g.required); len(missing) > 0 {
		err := &ScopeError{Scopes: g.required, Missing: missing}
		return admission{}, &rejection{status: http.StatusForbidden, scheme: s, code: "insufficient_scope", nonce: adm.nonce, err: err}
	}
	return adm, nil
}

var errTooManyFailures = errors.New("too many failures")

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
	p.hierarchy = g.hierarchy
	return &p, nil
}

// checkProof returns a new nonce if the client should get one.
func (g *Guard) checkProof(r *http.Request, token, thumbprint string) (nonce string, _ *rejection) {
	stale, err := g.dpop.check(r, g.publicURL(r), token, thumbprint)
	if g.dpop.nonces != nil && (stale || errors.Is(err, errNonce)) {
		nonce = g.dpop.nonces.current(time.Now())
	}
	switch {
	case err == nil:
		return nonce, nil
	case errors.Is(err, errNonce):
		return "", &rejection{status: http.StatusUnauthorized, scheme: schemeDPoP, code: "use_dpop_nonce", nonce: nonce, err: err}
	case errors.Is(err, ErrReplayQuota):
		return "", &rejection{status: http.StatusTooManyRequests, retryAfter: retryUnavailable, err: err}
	case errors.Is(err, ErrUnavailable):
		return "", &rejection{status: http.StatusServiceUnavailable, retryAfter: retryUnavailable, err: err}
	}
	return "", &rejection{status: http.StatusUnauthorized, scheme: schemeDPoP, code: "invalid_dpop_proof", nonce: nonce, err: err}
}

// credentials returns the token of a request, whose text is checked, and how it was presented.
func (g *Guard) credentials(r *http.Request) (scheme, string, *rejection) {
	malformed := func(err error) (scheme, string, *rejection) {
		return "", "", &rejection{status: http.StatusBadRequest, code: "invalid_request", err: err}
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
		return "", "", &rejection{status: http.StatusUnauthorized, err: ErrUnauthenticated}
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
		return "", "", &rejection{status: http.StatusUnauthorized, err: errors.New("another scheme of authorization")}
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
