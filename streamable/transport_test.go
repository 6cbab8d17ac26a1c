package streamable

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"mcpwire/client"
	"mcpwire/internal/base/userwait"
	"mcpwire/jsonrpc"
	"mcpwire/oauth"
)

// TestSendError shows which errors prove that nothing was sent.
func TestSendError(t *testing.T) {
	for _, test := range []struct {
		err  error
		want jsonrpc.Outcome
	}{
		{&net.OpError{Op: "dial", Err: syscall.ECONNREFUSED}, jsonrpc.OutcomeUnprocessed},
		{&net.OpError{Op: "dial", Err: &net.DNSError{Err: "no such host", IsNotFound: true}}, jsonrpc.OutcomeUnprocessed},
		{&url.Error{Op: "Post", URL: "http://secret", Err: &net.DNSError{Err: "no such host"}}, jsonrpc.OutcomeUnprocessed},
		{&net.OpError{Op: "proxyconnect", Err: syscall.ECONNREFUSED}, jsonrpc.OutcomeUnprocessed},
		{&net.OpError{Op: "read", Err: syscall.ECONNRESET}, jsonrpc.OutcomeUnknown},
		{&net.OpError{Op: "write", Err: syscall.EPIPE}, jsonrpc.OutcomeUnknown},
		{&oauth.AuthorizationError{Op: "authorize", Err: oauth.ErrConsentRequired}, jsonrpc.OutcomeDenied},
		{&oauth.AuthorizationError{Op: "token", Err: context.DeadlineExceeded}, jsonrpc.OutcomeDenied},
		{&oauth.AuthorizationError{Op: "discover", Err: fmt.Errorf("%w: x", oauth.ErrUnreachable)}, jsonrpc.OutcomeUnprocessed},
		{fmt.Errorf("oauth: %w", oauth.ErrNotReplayable), jsonrpc.OutcomeDenied},
		{io.EOF, jsonrpc.OutcomeUnknown},
		{io.ErrUnexpectedEOF, jsonrpc.OutcomeUnknown},
		{context.DeadlineExceeded, jsonrpc.OutcomeUnknown},
		{errors.New(http2RefusedPrefixes[0] + "x"), jsonrpc.OutcomeUnprocessed},
		{errors.New(http2RefusedPrefixes[1] + "17; REFUSED_STREAM; received from peer] x"), jsonrpc.OutcomeUnprocessed},
		{errors.New(http2RefusedPrefixes[1] + "17; PROTOCOL_ERROR; REFUSED_STREAM; received from peer] x"), jsonrpc.OutcomeUnknown},
		{errors.New(`http2: server sent GOAWAY and closed the connection; debug="` + http2RefusedPrefixes[0] + `"`), jsonrpc.OutcomeUnknown},
	} {
		if e := sendError(test.err); e.Outcome != test.want {
			t.Errorf("%v: %v, want %v", test.err, e.Outcome, test.want)
		}
	}
}

// TestClientProxy shows that the response of a proxy does not count as the server's, and that the
// request counts as not sent.
func TestClientProxy(t *testing.T) {
	for status, want := range map[int]jsonrpc.Outcome{407: jsonrpc.OutcomeDenied, 403: jsonrpc.OutcomeDenied, 502: jsonrpc.OutcomeUnprocessed, 200: jsonrpc.OutcomeUnprocessed} {
		proxy := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if r.Method != http.MethodConnect || r.Header.Get("Authorization") != "" {
				t.Errorf("the proxy got %s with %v", r.Method, r.Header)
			}
			w.WriteHeader(status)
		}))
		c := NewTransport("https://mcp.invalid/mcp", nil)
		to, _ := url.Parse(proxy.URL)
		c.ownTransport.Proxy = http.ProxyURL(to)
		c.conns.acquire()
		_, err := c.send(t.Context(), http.MethodPost, c.url, http.Header{"Authorization": {"secret"}}, []byte("{}"))
		if err == nil {
			t.Fatal("send succeeded")
		}
		e := sendError(err)
		if s, ok := errors.AsType[*StatusError](e); e.Outcome != want || status != 200 && (!ok || s.StatusCode != status) {
			t.Errorf("%d: %v, want %v", status, e, want)
		}
		c.ownTransport.CloseIdleConnections()
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
		if got := parseRetryAfter(http.Header{"Retry-After": {text}}, now); got != want {
			t.Errorf("%q: %v, want %v", text, got, want)
		}
	}
}

type fixedTransport struct{ resp *http.Response }

func (s fixedTransport) RoundTrip(*http.Request) (*http.Response, error) { return s.resp, nil }

// TestClientSilentTransport shows that a RoundTripper that violates its contract fails only its own
// call.
func TestClientSilentTransport(t *testing.T) {
	for _, resp := range []*http.Response{nil, {StatusCode: 200}} {
		c := NewTransport("http://x/", &TransportOptions{HTTPClient: &http.Client{Transport: fixedTransport{resp}}})
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

// TestInsufficientScopeText shows that the error of a missing scope names it, also behind challenges
// of other schemes.
func TestInsufficientScopeText(t *testing.T) {
	for _, test := range []struct {
		header []string
		want   string
	}{
		{[]string{`Bearer error="insufficient_scope", scope="a b"`}, "insufficient_scope: a b"},
		{[]string{`DPoP algs="ES256"`, `Bearer error="insufficient_scope", scope="a"`}, "insufficient_scope: a"},
		{[]string{`Bearer error="insufficient_scope"`}, "insufficient_scope: "},
		{[]string{`Bearer error="invalid_token"`}, "no"},
		{[]string{`"`}, "no"},
		{nil, "no"},
	} {
		resp := &http.Response{StatusCode: 403, Header: http.Header{"Content-Type": {"text/plain"}, "Www-Authenticate": test.header}, Body: io.NopCloser(strings.NewReader("no"))}
		if got := readHTTPError(resp).status.Text; got != test.want {
			t.Errorf("%q: %q, want %q", test.header, got, test.want)
		}
	}
}

// TestIsAway checks that the errors of an unreachable server are recognized on every system.
func TestIsAway(t *testing.T) {
	for _, test := range []struct {
		err  error
		want bool
	}{
		{&net.OpError{Op: "dial", Err: syscall.ECONNREFUSED}, true},
		{&net.OpError{Op: "dial", Err: syscall.Errno(10061)}, true}, // Windows
		{&net.OpError{Op: "read", Err: syscall.ECONNRESET}, false},
		{&StatusError{StatusCode: 502}, true},
		{&StatusError{StatusCode: 404}, false},
		{io.EOF, false},
	} {
		if got := isUnavailable(sendError(test.err)); got != test.want {
			t.Errorf("%v: %v, want %v", test.err, got, test.want)
		}
	}
}

// TestLoginTime shows that the timeouts of a client do not run while the HTTP client of its
// transport waits for a user.
func TestLoginTime(t *testing.T) {
	for _, method := range []string{"server/discover", "tools/call"} {
		t.Run(method, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				login := roundTripFunc(func(r *http.Request) (*http.Response, error) {
					body, err := io.ReadAll(r.Body)
					if err != nil {
						return nil, err
					}
					if r.Header.Get("Mcp-Method") == method {
						end := userwait.Begin(r.Context())
						<-time.After(time.Hour)
						end()
					}
					var m jsonrpc.Message
					if jsonrpc.Parse(body, &m, 0); m.Kind != jsonrpc.KindRequest {
						return nil, fmt.Errorf("no request: %s", body)
					}
					result := `{"resultType":"complete","supportedVersions":["2026-07-28"],"capabilities":{"tools":{}},"ttlMs":0,"cacheScope":"private","content":[]}`
					return &http.Response{StatusCode: 200, ContentLength: -1, Header: http.Header{"Content-Type": {"application/json"}},
						Body: io.NopCloser(bytes.NewReader(jsonrpc.AppendResult(nil, m.ID, []byte(result)))), Request: r}, nil
				})
				c, err := client.Dial(t.Context(), NewTransport("https://example.com/mcp", &TransportOptions{HTTPClient: &http.Client{Transport: login}}), nil)
				if err != nil {
					t.Fatal(err)
				}
				defer c.Close()
				if _, err := c.CallTool(t.Context(), "tool", nil); err != nil {
					t.Error(err)
				}
			})
		})
	}
}

// A roundTripFunc is an http.RoundTripper.
type roundTripFunc func(*http.Request) (*http.Response, error)

func (f roundTripFunc) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }
