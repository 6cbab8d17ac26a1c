package streamable

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"syscall"
	"testing"
	"time"

	"mcpwire/auth"
	"mcpwire/jsonrpc"
)

// TestSendError: only what certainly was not sent may count so.
func TestSendError(t *testing.T) {
	for _, test := range []struct {
		err  error
		want jsonrpc.Fate
	}{
		{&net.OpError{Op: "dial", Err: syscall.ECONNREFUSED}, jsonrpc.FateUnsent},
		{&net.OpError{Op: "dial", Err: &net.DNSError{Err: "no such host", IsNotFound: true}}, jsonrpc.FateUnsent},
		{&url.Error{Op: "Post", URL: "http://secret", Err: &net.DNSError{Err: "no such host"}}, jsonrpc.FateUnsent},
		{&net.OpError{Op: "proxyconnect", Err: syscall.ECONNREFUSED}, jsonrpc.FateUnsent},
		{&net.OpError{Op: "read", Err: syscall.ECONNRESET}, jsonrpc.FateLost},
		{&net.OpError{Op: "write", Err: syscall.EPIPE}, jsonrpc.FateLost},
		{&auth.AuthorizationError{Op: "authorize", Err: auth.ErrConsentRequired}, jsonrpc.FateDenied},
		{&auth.AuthorizationError{Op: "token", Err: context.DeadlineExceeded}, jsonrpc.FateDenied},
		{&auth.AuthorizationError{Op: "discover", Err: fmt.Errorf("%w: x", auth.ErrUnreachable)}, jsonrpc.FateUnsent},
		{fmt.Errorf("auth: %w", auth.ErrNotReplayable), jsonrpc.FateDenied},
		{io.EOF, jsonrpc.FateLost},
		{io.ErrUnexpectedEOF, jsonrpc.FateLost},
		{context.DeadlineExceeded, jsonrpc.FateLost},
		{errors.New(untouched[0] + "x"), jsonrpc.FateUnsent},
		{errors.New(untouched[1] + "17; REFUSED_STREAM; received from peer] x"), jsonrpc.FateUnsent},
		{errors.New(untouched[1] + "17; PROTOCOL_ERROR; REFUSED_STREAM; received from peer] x"), jsonrpc.FateLost},
		{errors.New(`http2: server sent GOAWAY and closed the connection; debug="` + untouched[0] + `"`), jsonrpc.FateLost},
	} {
		if e := sendError(test.err); e.Fate != test.want {
			t.Errorf("%v: %v, want %v", test.err, e.Fate, test.want)
		}
	}
}

// TestClientProxy: what a proxy answers is no answer of the server, and nothing has been sent to that.
func TestClientProxy(t *testing.T) {
	for status, want := range map[int]jsonrpc.Fate{407: jsonrpc.FateDenied, 403: jsonrpc.FateDenied, 502: jsonrpc.FateUnsent, 200: jsonrpc.FateUnsent} {
		proxy := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if r.Method != http.MethodConnect || r.Header.Get("Authorization") != "" {
				t.Errorf("the proxy got %s with %v", r.Method, r.Header)
			}
			w.WriteHeader(status)
		}))
		c := Dial("https://mcp.invalid/mcp", nil)
		to, _ := url.Parse(proxy.URL)
		c.own.Proxy = http.ProxyURL(to)
		c.conns.enter()
		_, err := c.send(t.Context(), http.MethodPost, c.url, http.Header{"Authorization": {"secret"}}, []byte("{}"))
		if err == nil {
			t.Fatal("send succeeded")
		}
		e := sendError(err)
		if s, ok := errors.AsType[*StatusError](e); e.Fate != want || status != 200 && (!ok || s.StatusCode != status) {
			t.Errorf("%d: %v, want %v", status, e, want)
		}
		c.own.CloseIdleConnections()
		proxy.Close()
	}
}

func TestRetryAfter(t *testing.T) {
	now := time.Date(2026, 11, 20, 12, 0, 0, 0, time.UTC)
	for text, want := range map[string]time.Duration{
		"":                              0,
		"0":                             time.Millisecond,
		" 7 ":                           7 * time.Second,
		"86401":                         24 * time.Hour,
		"99999999999999999999999":       24 * time.Hour,
		"-1":                            0,
		"1.5":                           0,
		"soon":                          0,
		"Fri, 20 Nov 2026 12:00:05 GMT": 5 * time.Second,
		"Fri, 20 Nov 2020 12:00:05 GMT": time.Millisecond,
		"Fri, 20 Nov 9999 12:00:05 GMT": 24 * time.Hour,
	} {
		if got := retryAfterOf(http.Header{"Retry-After": {text}}, now); got != want {
			t.Errorf("%q: %v, want %v", text, got, want)
		}
	}
}

type silent struct{ resp *http.Response }

func (s silent) RoundTrip(*http.Request) (*http.Response, error) { return s.resp, nil }

// TestClientSilentTransport: a round tripper that breaks its contract makes a call fail, and nothing else.
func TestClientSilentTransport(t *testing.T) {
	for _, resp := range []*http.Response{nil, {StatusCode: 200}} {
		c := Dial("http://x/", &DialOptions{HTTPClient: &http.Client{Transport: silent{resp}}})
		if _, err := c.send(t.Context(), http.MethodGet, c.url, http.Header{}, nil); !errors.Is(err, errNoResponse) {
			t.Errorf("send: %v", err)
		}
	}
}

func TestStatusErrorText(t *testing.T) {
	e := &StatusError{StatusCode: 503, Text: "\x1b[31m"}
	if got, want := fmt.Sprint(e), `HTTP status 503 Service Unavailable: "\x1b[31m"`; got != want {
		t.Errorf("%s, want %s", got, want)
	}
}

// TestIsAway: a server that is not there is told by the numbers of every system.
func TestIsAway(t *testing.T) {
	for _, test := range []struct {
		err  error
		want bool
	}{
		{&net.OpError{Op: "dial", Err: syscall.ECONNREFUSED}, true},
		{&net.OpError{Op: "dial", Err: syscall.Errno(10061)}, true}, // of Windows
		{&net.OpError{Op: "read", Err: syscall.ECONNRESET}, false},
		{&StatusError{StatusCode: 502}, true},
		{&StatusError{StatusCode: 404}, false},
		{io.EOF, false},
	} {
		if got := isAway(sendError(test.err)); got != test.want {
			t.Errorf("%v: %v, want %v", test.err, got, test.want)
		}
	}
}
