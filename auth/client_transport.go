package auth

import (
	"errors"
	"io"
	"net/http"
)

// maxDrainBytes is what is read of a refusal so that its connection can be used again.
const maxDrainBytes = 64 << 10

// clientTransport is what [Client.Transport] returns.
type clientTransport struct {
	server *serverAuth
	base   http.RoundTripper
}

// An attempt counts what was done for one request.
type attempt struct {
	authorized, stepUps int
	retriedNonce        bool
	failures            uint64 // of the session, when the request was begun: it may have waited for one of them before it was sent
}

// maxAuthorizations is how many tokens a request may need: one that another process got may be as bad as the one before.
const maxAuthorizations = 3

// RoundTrip implements [http.RoundTripper].
func (t *clientTransport) RoundTrip(req *http.Request) (*http.Response, error) {
	if originOf(req.URL) != t.server.origin || len(req.Header.Values("Authorization")) > 0 {
		return t.base.RoundTrip(req)
	}
	var a attempt
	for first := true; ; first = false {
		a.failures = t.server.failuresSoFar()
		tok, err := t.server.current(req.Context())
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
		// The request with the token is nobody else's business.
		resp.Request = req
		again, err := t.handleResponse(req, tok, resp, &a)
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

// closeOnError closes the body of a request that is not sent.
func (t *clientTransport) closeOnError(req *http.Request, first bool, err error) error {
	if first {
		closeBody(req)
	}
	return err
}

// CloseIdleConnections lets [http.Client.CloseIdleConnections] reach base.
func (t *clientTransport) CloseIdleConnections() {
	if c, ok := t.base.(interface{ CloseIdleConnections() }); ok {
		c.CloseIdleConnections()
	}
}

func canReplay(req *http.Request) bool {
	return req.Body == nil || req.Body == http.NoBody || req.GetBody != nil
}

// authorize returns a copy of the request with the token. The first one has the request's own body.
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

// handleResponse does what a response demands and reports whether the request is to be sent again.
func (t *clientTransport) handleResponse(req *http.Request, tok *token, resp *http.Response, a *attempt) (again bool, err error) {
	fresh := tok != nil && tok.Type == "DPoP" && t.server.client.nonces.store(t.server.nonceKey(), resp.Header)
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
		err = t.server.authorize(req.Context(), tok, d, &operation, t.server.failuresSoFar())
	case resp.StatusCode == http.StatusUnauthorized:
		if adopted := tok != nil && tok.fromOtherProcess; a.authorized > 0 && !adopted || a.authorized >= maxAuthorizations {
			return false, nil
		}
		a.authorized++
		err = t.server.authorize(req.Context(), tok, d, nil, a.failures)
	default:
		return false, nil
	}
	if errors.Is(err, errNothingToRequest) {
		return false, nil
	}
	return err == nil, err
}

// drain reads the little that a refusal has and closes it. One whose length is not known is only closed: it could go on for ever.
func drain(resp *http.Response) {
	if resp.ContentLength > 0 && resp.ContentLength <= maxDrainBytes {
		io.CopyN(io.Discard, resp.Body, resp.ContentLength)
	}
	resp.Body.Close()
}
