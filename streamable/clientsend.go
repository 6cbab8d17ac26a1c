package streamable

import (
	"bytes"
	"context"
	"errors"
	"io"
	"maps"
	"net/http"
	"net/url"
)

// send makes an HTTP request, and those that redirects lead to. body is nil if it has none; neither it nor h may be changed afterwards.
//
// It does what there is of an http.Client's work: that one copies the header of each request, in case that it is redirected.
func (t *Transport) send(ctx context.Context, method string, to *url.URL, h http.Header, body []byte) (*http.Response, error) {
	for hops := 0; ; hops++ {
		resp, err := t.roundTrip(ctx, method, to, h, body)
		if err != nil {
			return nil, err
		}
		next := redirectTarget(resp, to)
		if next == nil || hops == maxRedirects {
			return resp, nil
		}
		resp.Body.Close()
		to = next
	}
}

var errNoResponse = errors.New("the RoundTripper returned neither a response nor an error")

func (t *Transport) roundTrip(ctx context.Context, method string, to *url.URL, h http.Header, body []byte) (*http.Response, error) {
	req := t.template.WithContext(ctx)
	req.Method, req.URL, req.Host, req.Header = method, to, to.Host, h
	if body != nil {
		req.ContentLength = int64(len(body))
		req.Body = io.NopCloser(bytes.NewReader(body))
		if t.mayResend() {
			req.GetBody = func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(body)), nil }
		}
	}
	if t.jar != nil {
		if cookies := t.jar.Cookies(to); len(cookies) > 0 {
			req.Header = maps.Clone(h)
			for _, cookie := range cookies {
				req.AddCookie(cookie)
			}
		}
	}
	resp, err := t.roundTripper.RoundTrip(req)
	switch {
	case err != nil:
		return nil, err
	case resp == nil || resp.Body == nil:
		return nil, errNoResponse
	}
	if resp.ProtoMajor == 2 && !t.sawHTTP2.Load() {
		t.sawHTTP2.Store(true)
	}
	if resp.Request == nil {
		resp.Request = req
	}
	if t.jar != nil {
		if cookies := resp.Cookies(); len(cookies) > 0 {
			t.jar.SetCookies(to, cookies)
		}
	}
	return resp, nil
}

// mayResend reports whether net/http may have a body a second time, without which it does not send a request again. Over HTTP/1 it does that only with requests of which it has written
// nothing (and with those that have an idempotency key, see checkHeaderOption). Over HTTP/2 it also does that after RST_STREAM with PROTOCOL_ERROR, which many servers and proxies send when
// the response is bad: the request has been carried out by then. What a server certainly did not carry out is known by its error there, see sendError. Whatever round tripper the user has may
// need the body again, to log in.
func (t *Transport) mayResend() bool { return t.ownTransport == nil || !t.sawHTTP2.Load() }

// redirectTarget returns where a response leads that may be followed: one that asks for the same request at the same origin. Of others the response is returned, see describeRedirect.
func redirectTarget(resp *http.Response, from *url.URL) *url.URL {
	if resp.StatusCode != http.StatusTemporaryRedirect && resp.StatusCode != http.StatusPermanentRedirect {
		return nil
	}
	location := resp.Header.Get("Location")
	if location == "" {
		return nil
	}
	to, err := from.Parse(location)
	if err != nil || !sameOrigin(to, from) || to.User != nil {
		return nil
	}
	to.Fragment, to.RawFragment = "", ""
	return to
}

// maxDrain is how much of a body that is of no interest is read, so that its connection can be used again.
const maxDrain = 16 << 10

func drainBody(body io.Reader) { io.CopyN(io.Discard, body, maxDrain) }
