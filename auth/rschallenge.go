package auth

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"
)

// A scheme is one of the ways to present a token.
type scheme string

const (
	schemeBearer scheme = "Bearer"
	schemeDPoP   scheme = "DPoP"
)

// A refusal is an answer to a request that is not let through.
type rejection struct {
	status     int
	scheme     scheme   // that the request used; empty if none
	code       string   // of https://www.rfc-editor.org/rfc/rfc6750#section-3.1 or https://www.rfc-editor.org/rfc/rfc9449#section-12.2; may be empty
	scopes     []string // that are needed
	retryAfter time.Duration
	nonce      string // may be empty
	err        error  // what was wrong, for the log
}

var errorDescriptions = map[string]string{
	"invalid_request":    "The request is malformed.",
	"invalid_token":      "The token is not valid here.",
	"insufficient_scope": "The operation needs more scopes.",
	"invalid_dpop_proof": "The DPoP proof is not valid.",
	"use_dpop_nonce":     "The DPoP proof needs another nonce.",
}

type guardKey struct{}

// passedGuard is what Deny has to know of how a request got past a guard.
type passedGuard struct {
	guard  *Guard
	scheme scheme
}

func passedGuardOf(ctx context.Context) passedGuard {
	p, _ := ctx.Value(guardKey{}).(passedGuard)
	return p
}

// Deny answers a request that is authenticated but must not be served because of err: with 403 and a challenge that names all scopes of the operation if
// err is, or wraps, a [*ScopeError]; with 401 if it is [ErrUnauthenticated] or [ErrInvalidToken]; with 503 if it is [ErrUnavailable]; else with 403. Nothing
// of the error's text is sent. Nothing must have been written to w. The challenge is that of the [Guard] which r passed; if it passed none, it says less.
// See https://modelcontextprotocol.io/specification/2026-07-28/basic/authorization#runtime-insufficient-scope-errors.
func Deny(w http.ResponseWriter, r *http.Request, err error) {
	passedGuardOf(r.Context()).guard.Deny(w, r, err)
}

// Deny is [Deny] for a handler that knows its guard. A nil Guard has no metadata to point to.
func (g *Guard) Deny(w http.ResponseWriter, r *http.Request, err error) {
	used := passedGuardOf(r.Context()).scheme
	if used == "" {
		used = schemeBearer
	}
	var scopeErr *ScopeError
	switch {
	case errors.As(err, &scopeErr):
		scopes := scopeErr.Scopes
		if g != nil {
			scopes = slices.Concat(g.required, scopes) // these the operation needs too, and some clients ask for no more than they are told
		}
		g.reject(w, r, &rejection{status: http.StatusForbidden, scheme: used, code: "insufficient_scope", scopes: scopes, err: err})
	case errors.Is(err, ErrInvalidToken):
		g.reject(w, r, &rejection{status: http.StatusUnauthorized, scheme: used, code: "invalid_token", err: err})
	case errors.Is(err, ErrUnauthenticated):
		g.reject(w, r, &rejection{status: http.StatusUnauthorized, err: err})
	case errors.Is(err, ErrUnavailable):
		g.reject(w, r, &rejection{status: http.StatusServiceUnavailable, retryAfter: retryUnavailable, err: err})
	default:
		g.reject(w, r, &rejection{status: http.StatusForbidden, err: err})
	}
}

// retryUnavailable is how long clients are told to wait for an issuer.
const retryUnavailable = 5 * time.Second

// reject writes the answer. A nil guard is one that nothing is known of.
func (g *Guard) reject(w http.ResponseWriter, r *http.Request, f *rejection) {
	if g != nil {
		g.logRejection(r, f)
	}
	h := w.Header()
	h.Set("Cache-Control", "no-store")
	h.Set("X-Content-Type-Options", "nosniff")
	if f.status == http.StatusUnauthorized || f.code == "insufficient_scope" || f.code == "invalid_request" {
		for _, c := range g.challenges(f) {
			h.Add("WWW-Authenticate", c)
		}
	}
	if f.nonce != "" {
		h.Set("DPoP-Nonce", f.nonce)
	}
	if f.retryAfter > 0 {
		h.Set("Retry-After", strconv.FormatInt(int64((f.retryAfter+time.Second-1)/time.Second), 10))
	}
	if f.code == "" {
		h.Set("Content-Length", "0")
		w.WriteHeader(f.status)
		return
	}
	body, err := json.Marshal(map[string]string{"error": f.code, "error_description": errorDescriptions[f.code]})
	if err != nil {
		body = nil
	}
	h.Set("Content-Type", "application/json")
	h.Set("Content-Length", strconv.Itoa(len(body)))
	w.WriteHeader(f.status)
	if r.Method != http.MethodHead {
		_, _ = w.Write(body) // the client is gone
	}
}

// logRejection logs a refusal.
func (g *Guard) logRejection(r *http.Request, f *rejection) {
	if f.status == http.StatusServiceUnavailable {
		g.log.WarnContext(r.Context(), "cannot verify token", "error", f.err)
		return
	}
	g.log.DebugContext(r.Context(), "request refused", "status", f.status, "code", f.code, "error", f.err)
}

// challenges returns the values of WWW-Authenticate: that of the scheme which the request used comes first, and only it says what was wrong. When the
// scheme was right, but not the scope, it is the only one.
func (g *Guard) challenges(f *rejection) []string {
	offered := []scheme{schemeBearer}
	if g != nil && g.dpop != nil {
		offered = []scheme{schemeBearer, schemeDPoP}
		if g.dpop.required {
			offered = []scheme{schemeDPoP}
		}
	}
	main := f.scheme
	if !slices.Contains(offered, main) {
		main = offered[0]
	}
	list := []string{g.challenge(main, f, f.code)}
	if f.status == http.StatusForbidden {
		return list
	}
	for _, s := range offered {
		if s != main {
			list = append(list, g.challenge(s, f, ""))
		}
	}
	return list
}

// challenge returns one challenge. What it quotes was checked when the guard was made, is a constant, or goes through validScope: there is nothing to
// escape.
func (g *Guard) challenge(s scheme, f *rejection, code string) string {
	var params []string
	add := func(name, value string) {
		if value != "" {
			params = append(params, name+`="`+value+`"`)
		}
	}
	if g != nil {
		add("realm", g.realm)
	}
	add("error", code)
	add("error_description", errorDescriptions[code])
	scopes := f.scopes
	if scopes == nil && g != nil {
		scopes = g.required
	}
	scopes = slices.DeleteFunc(slices.Clone(scopes), func(s string) bool { return !validScope(s) })
	add("scope", strings.Join(unique(scopes), " "))
	if g != nil {
		add("resource_metadata", g.metadataURL)
		if s == schemeDPoP {
			add("algs", strings.Join(g.dpop.names, " "))
		}
	}
	if len(params) == 0 {
		return string(s)
	}
	return string(s) + " " + strings.Join(params, ", ")
}
