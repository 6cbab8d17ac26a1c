package endpoint

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"time"

	"mcpwire/cmd/internal/text/safe"
	"mcpwire/jsonrpc"
)

// FramingOr returns f, or other if f is FramingAuto.
func FramingOr(f, other jsonrpc.Framing) jsonrpc.Framing {
	if f == jsonrpc.FramingAuto {
		return other
	}
	return f
}

// A Connect opens a connection to the server. A process writes its standard error to stderr.
type Connect = func(ctx context.Context, stderr io.Writer) (jsonrpc.Framer, error)

// UnavailableTimeout limits how long a call with a broken stream waits for an unavailable server.
// It is short because a restarted server does not know the call.
const UnavailableTimeout = 2 * time.Second

// Transport returns the transport of a proxy to a server that many clients share.
func Transport(conf *tls.Config, connectTimeout time.Duration) *http.Transport {
	dial := &net.Dialer{Timeout: connectTimeout, KeepAlive: 15 * time.Second}
	return &http.Transport{
		Proxy: http.ProxyFromEnvironment, DialContext: dial.DialContext, TLSClientConfig: conf, ForceAttemptHTTP2: true,
		TLSHandshakeTimeout: connectTimeout, ExpectContinueTimeout: time.Second, IdleConnTimeout: 90 * time.Second, MaxIdleConnsPerHost: 64,
		DisableCompression: true, // little on the wire may be much in memory
		// An idle connection can be dead without notice.
		HTTP2: &http.HTTP2Config{SendPingTimeout: 15 * time.Second, PingTimeout: 15 * time.Second},
	}
}

// NoPost sends requests, except those that post to URL, the address of an HTTP+SSE stream. It
// answers those itself: a client that sees the answer opens the stream. An empty URL excepts none.
type NoPost struct {
	Next http.RoundTripper
	URL  string
}

// RoundTrip implements http.RoundTripper.
func (n NoPost) RoundTrip(r *http.Request) (*http.Response, error) {
	if n.URL == "" || r.Method != http.MethodPost || r.URL.String() != n.URL {
		return n.Next.RoundTrip(r)
	}
	if r.Body != nil {
		r.Body.Close()
	}
	return &http.Response{
		Status: "405 Method Not Allowed", StatusCode: http.StatusMethodNotAllowed, Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1,
		Header: http.Header{}, Body: http.NoBody, Request: r,
	}, nil
}

// Socket returns a function that connects to a unix or TCP socket.
func Socket(kind, where string, framing jsonrpc.Framing, maxFrame int) Connect {
	dial := &net.Dialer{KeepAlive: 15 * time.Second}
	return func(ctx context.Context, _ io.Writer) (jsonrpc.Framer, error) {
		conn, err := dial.DialContext(ctx, kind, where)
		if err != nil {
			return nil, err
		}
		return jsonrpc.NewFramer(conn, &jsonrpc.FramerOptions{Framing: framing, MaxFrame: maxFrame}), nil
	}
}

// TLS returns the configuration for a file of additional CA certificates, which may be empty,
// or for accepting every certificate. It returns nil if neither is given.
func TLS(caFile string, insecure bool) (*tls.Config, error) {
	if !insecure && caFile == "" {
		return nil, nil
	}
	conf := &tls.Config{InsecureSkipVerify: insecure}
	if caFile == "" {
		return conf, nil
	}
	pem, err := os.ReadFile(caFile)
	if err != nil {
		return nil, err
	}
	if conf.RootCAs, err = x509.SystemCertPool(); err != nil {
		conf.RootCAs = x509.NewCertPool()
	}
	if !conf.RootCAs.AppendCertsFromPEM(pem) {
		return nil, fmt.Errorf("%s: no certificate in it (want PEM)", safe.Line(caFile))
	}
	return conf, nil
}
