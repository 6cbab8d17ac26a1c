package oauth

import (
	"cmp"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"slices"
	"strings"
	"time"

	"mcpwire/internal/net/challenge"
)

// maxDrainBytes limits what is read of a rejection so that its connection can be reused.
const maxDrainBytes = 64 << 10

// clientTransport is the transport of [Client.Transport].
type clientTransport struct {
	server *serverAuth
	base   http.RoundTripper
}

// An attempt counts the retries of one request.
type attempt struct {
	authorized, stepUps int
	retriedNonce        bool
	// failures is the failure count when the request began. The request may have waited for a
	// failing attempt before it was sent.
	failures uint64
}

// maxAuthorizations limits the tokens for one request: a token of another process may be rejected
// too.
const maxAuthorizations = 3

// RoundTrip implements [http.RoundTripper].
func (t *clientTransport) RoundTrip(req *http.Request) (*http.Response, error) {
	if originOf(req.URL) != t.server.origin || len(req.Header.Values("Authorization")) > 0 {
		return t.base.RoundTrip(req)
	}
	server, err := t.server.forRequest(req.Context())
	if err != nil {
		return nil, t.closeOnError(req, true, err)
	}
	var a attempt
	for first := true; ; first = false {
		a.failures = server.failuresSoFar()
		tok, err := server.current(req.Context())
		if err != nil {
			return nil, t.closeOnError(req, first, err)
		}
		authorized, err := t.authorize(req, tok, first)
		if err != nil {
			return nil, t.closeOnError(req, first, err)
		}
		resp, err := t.base.RoundTrip(authorized)
		if err != nil {
			return nil, err
		}
		// Do not expose the request with the token.
		resp.Request = req
		again, err := server.handleResponse(req, tok, resp, &a)
		if err == nil && !again {
			return resp, nil
		}
		drain(resp)
		if err == nil && !canReplay(req) {
			err = ErrNotReplayable
		}
		if err != nil {
			return nil, err
		}
	}
}

// closeOnError closes the body of a request that is not sent, and returns err.
func (t *clientTransport) closeOnError(req *http.Request, first bool, err error) error {
	if first && req.Body != nil {
		req.Body.Close()
	}
	return err
}

// CloseIdleConnections closes the idle connections of base, for [http.Client.CloseIdleConnections].
func (t *clientTransport) CloseIdleConnections() {
	if c, ok := t.base.(interface{ CloseIdleConnections() }); ok {
		c.CloseIdleConnections()
	}
}

func canReplay(req *http.Request) bool {
	return req.Body == nil || req.Body == http.NoBody || req.GetBody != nil
}

// authorize returns a copy of the request with the token. The first copy uses the request's own
// body.
func (t *clientTransport) authorize(req *http.Request, tok *token, first bool) (*http.Request, error) {
	out := req.Clone(req.Context())
	if !first && req.GetBody != nil {
		body, err := req.GetBody()
		if err != nil {
			return nil, err
		}
		out.Body = body
	}
	if tok == nil {
		return out, nil
	}
	out.Header.Set("Authorization", tok.Type+" "+tok.Access.Reveal())
	if tok.Type == "DPoP" {
		proof, err := tok.proof.proof(req.Method, req.URL, tok.Access, t.server.client.nonces.get(t.server.nonceKey()))
		if err != nil {
			if !first && out.Body != nil {
				out.Body.Close()
			}
			return nil, err
		}
		out.Header.Set("DPoP", proof)
	}
	return out, nil
}

func (s *serverAuth) nonceKey() string { return s.origin + " rs" }

// handleResponse handles a response and reports whether to send the request again.
func (s *serverAuth) handleResponse(req *http.Request, tok *token, resp *http.Response, a *attempt) (again bool, err error) {
	fresh := tok != nil && tok.Type == "DPoP" && s.client.nonces.store(s.nonceKey(), resp.Header)
	if resp.StatusCode != http.StatusUnauthorized && resp.StatusCode != http.StatusForbidden {
		return false, nil
	}
	d := authRequirementOf(resp.Header)
	switch {
	case resp.StatusCode == http.StatusUnauthorized && d.nonce && tok != nil && tok.Type == "DPoP":
		again = fresh && !a.retriedNonce
		a.retriedNonce = true
		return again, nil
	case d.insufficient && tok != nil:
		if a.stepUps >= maxStepUps {
			return false, nil
		}
		a.stepUps++
		operation := operationOf(req)
		err = s.authorize(req.Context(), tok, d, &operation, s.failuresSoFar())
	case resp.StatusCode == http.StatusUnauthorized:
		if adopted := tok != nil && tok.fromOtherProcess; a.authorized > 0 && !adopted || a.authorized >= maxAuthorizations {
			return false, nil
		}
		a.authorized++
		err = s.authorize(req.Context(), tok, d, nil, a.failures)
	default:
		return false, nil
	}
	if errors.Is(err, errNothingToRequest) {
		return false, nil
	}
	return err == nil, err
}

// drain reads a short rejection and closes it. A response of unknown length is only closed, since
// it may be endless.
func drain(resp *http.Response) {
	if resp.ContentLength > 0 && resp.ContentLength <= maxDrainBytes {
		io.CopyN(io.Discard, resp.Body, resp.ContentLength)
	}
	resp.Body.Close()
}

const (
	// maxStepUps limits the requests for more scopes for one operation within stepUpWindow, and
	// maxAllStepUps those for all operations, whose names a server may choose.
	maxStepUps    = 2
	maxAllStepUps = 10
	stepUpWindow  = 10 * time.Minute
	// maxOperations limits the tracked operations, and maxOperationName the bytes of each name.
	maxOperations    = 1024
	maxOperationName = 256
	// maxOperationBody limits how much of a request is read to find its operation.
	maxOperationBody = 4 << 20
)

// stepUpState is the state of one operation.
type stepUpState struct {
	count int
	since time.Time
	// denied is the error of the last attempt, if access was denied.
	denied error
}

// stepUpLocked returns the entry of an operation, or nil if no more scopes may be requested. The
// caller holds s.mu.
func (s *serverAuth) stepUpLocked(operation string, now time.Time) *stepUpState {
	all := 0
	for name, e := range s.stepUps {
		if now.Sub(e.since) >= stepUpWindow {
			delete(s.stepUps, name)
			continue
		}
		all += e.count
	}
	if all >= maxAllStepUps {
		return nil
	}
	e := s.stepUps[operation]
	if e == nil {
		if len(s.stepUps) >= maxOperations {
			return nil
		}
		e = &stepUpState{since: now}
		s.stepUps[operation] = e
	}
	if e.count >= maxStepUps || e.denied != nil {
		return nil
	}
	return e
}

// operationOf returns the operation of a request, from its message. It reads the message again, but
// only for rejected requests.
func operationOf(req *http.Request) string {
	if req.GetBody == nil {
		return ""
	}
	body, err := req.GetBody()
	if err != nil {
		return ""
	}
	defer body.Close()
	var m struct {
		Method string
		// Params names the subject of a method. No method has both.
		Params struct{ Name, URI string }
	}
	if json.NewDecoder(io.LimitReader(body, maxOperationBody)).Decode(&m) != nil {
		return ""
	}
	name := m.Method
	if about := cmp.Or(m.Params.Name, m.Params.URI); about != "" {
		name += " " + about
	}
	return name[:min(len(name), maxOperationName)]
}

// maxScopes limits the scopes of a challenge.
const maxScopes = 128

// An authRequirement is what a response requires, from all its challenges.
type authRequirement struct {
	// metadata is resource_metadata, or "".
	metadata string
	scopes   []string
	// insufficient and nonce are the errors insufficient_scope and use_dpop_nonce.
	insufficient, nonce bool
	// dpop says that the scheme DPoP is offered.
	dpop bool
}

// authRequirementOf reads the challenges of a response. It ignores malformed parts: the metadata
// can be found without them.
func authRequirementOf(h http.Header) authRequirement {
	var d authRequirement
	list, _ := challenge.Parse(h.Values("WWW-Authenticate"))
	for _, c := range list {
		dpop := c.Scheme == "dpop"
		if !dpop && c.Scheme != "bearer" {
			continue
		}
		d.dpop = d.dpop || dpop
		d.metadata = cmp.Or(d.metadata, c.Params["resource_metadata"])
		d.scopes = unionScopes(d.scopes, parseScopes(c.Params["scope"]))
		d.insufficient = d.insufficient || c.Params["error"] == "insufficient_scope"
		d.nonce = d.nonce || dpop && c.Params["error"] == "use_dpop_nonce"
	}
	return d
}

// parseScopes splits a list of scopes. It drops invalid scopes and those beyond the limit. See
// https://www.rfc-editor.org/rfc/rfc6749#section-3.3.
func parseScopes(text string) []string {
	return unionScopes(nil, strings.Split(text, " "))
}

// unionScopes returns a and the scopes of b that a lacks, in order. It does not change a.
func unionScopes(a, b []string) []string {
	out := slices.Clip(a)
	for _, s := range b {
		if isScope(s) && !slices.Contains(out, s) && len(out) < maxScopes {
			out = append(out, s)
		}
	}
	return out
}

func isScope(s string) bool {
	for i := range len(s) {
		if c := s[i]; c < 0x21 || c > 0x7e || c == '"' || c == '\\' {
			return false
		}
	}
	return s != "" && len(s) <= 256
}
