package cli

import (
	"context"
	"crypto/tls"
	"errors"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"os/exec"
	"time"

	"mcpwire/cmd/internal/proxy/tap"
	"mcpwire/internal/proc/environ"
	"mcpwire/internal/proxy/bridge"
	"mcpwire/jsonrpc"
	"mcpwire/stdio"
	"mcpwire/streamable"
)

// A bridgeConnect opens a connection to the server. A process writes its standard error to stderr.
type bridgeConnect = func(ctx context.Context, stderr io.Writer) (jsonrpc.Framer, error)

// inPath returns an error if the program is not found in PATH.
func inPath(program string) error {
	if _, err := exec.LookPath(program); err != nil && !errors.Is(err, exec.ErrDot) {
		start := &tap.StartError{Command: program, Err: err}
		hint := "check the command's path"
		if errors.Is(err, exec.ErrNotFound) {
			hint = "the program is not in the PATH set by the host: use its full path"
		}
		return fail(exitUnreachable, "spawn", hint, start)
	}
	return nil
}

// processSide starts a process for each connection and copies its standard error to that of the
// bridge.
func (f *bridgeFlags) processSide(e *env, t *targetSpec) *upstreamTarget {
	show := newTailWriter(e.stderr)
	base := stdio.Command(t.command[0], t.command[1:]...)
	base.Dir, base.Env, base.Framing, base.MaxFrame = t.dir, t.env, f.target.framing, f.maxFrame
	// Hosts give the bridge the variables of the server; only the secret of the bridge is not one.
	base.EnvAllow = environ.Names(nil, []string{f.http.tokenEnv})
	return &upstreamTarget{name: t.captureName(), process: true, readyFor: time.Minute, connect: func(ctx context.Context, stderr io.Writer) (jsonrpc.Framer, error) {
		cmd := *base
		cmd.Stderr = io.MultiWriter(show, stderr)
		return startRecorded(ctx, &cmd)
	}}
}

// urlSide connects over HTTP. All connections share one transport and its knowledge of the server's
// tools.
func (f *bridgeFlags) urlSide(e *env, t *targetSpec, log *slog.Logger) (*upstreamTarget, error) {
	side, err := f.httpSide(e, t)
	if err != nil {
		return nil, err
	}
	transport := streamable.Dial(t.url, &streamable.DialOptions{
		HTTPClient: &http.Client{Transport: bridge.OuterTransport(side)}, Header: t.header, NoSSE: t.transport == transportHTTP, MaxFrame: f.maxFrame, UnavailableTimeout: awayTimeout, Logger: log,
	})
	return &upstreamTarget{name: nameOfURL(t.url), url: t.url, http: true, login: side.clock.last, connect: func(ctx context.Context, _ io.Writer) (jsonrpc.Framer, error) {
		return transport.Connect(ctx)
	}}, nil
}

// awayTimeout limits how long a call with a broken stream waits for an unavailable server. It is
// short because a restarted server does not know the call.
const awayTimeout = 2 * time.Second

// httpSide returns the round tripper for the requests to the server. Unlike that of other commands,
// it lets a user log in although standard input belongs to a host.
func (f *bridgeFlags) httpSide(e *env, t *targetSpec) (*httpSide, error) {
	conf, err := f.target.tls()
	if err != nil {
		return nil, err
	}
	recorded := bridge.Transport(proxyTransport(conf, f.target.connectTimeout))
	h := &httpSide{next: recorded}
	if t.transport == transportSSE {
		h.sse = t.url
	}
	how, err := f.target.login(e, t)
	if err != nil || how == noLogin {
		return h, err
	}
	if how == byStore && os.Getenv("CI") == "" {
		how = byBrowser
	}
	h.interactive = how == byBrowser
	// browse is nil on a terminal whose lines belong to a client: there the user opens the page.
	var browse browseFunc
	switch {
	case !e.canAsk():
		browse = openBrowser
	case f.listen != "":
		browse = askFirst(e.stderr, e.prompter.ask, openBrowser)
	}
	h.next, err = f.target.authorized(e, t, h, watcher{recorded, &h.refused}, conf, how, browse)
	return h, err
}

// proxyTransport returns the transport of a proxy to a server that many clients share.
func proxyTransport(conf *tls.Config, connectTimeout time.Duration) *http.Transport {
	dial := &net.Dialer{Timeout: connectTimeout, KeepAlive: 15 * time.Second}
	return &http.Transport{
		Proxy: http.ProxyFromEnvironment, DialContext: dial.DialContext, TLSClientConfig: conf, ForceAttemptHTTP2: true,
		TLSHandshakeTimeout: connectTimeout, ExpectContinueTimeout: time.Second, IdleConnTimeout: 90 * time.Second, MaxIdleConnsPerHost: 64,
		DisableCompression: true, // little on the wire may be much in memory
		// An idle connection can be dead without notice.
		HTTP2: &http.HTTP2Config{SendPingTimeout: 15 * time.Second, PingTimeout: 15 * time.Second},
	}
}

// noPost sends requests, except those that post to URL, the address of an HTTP+SSE stream. It
// answers those itself: a client that sees the answer opens the stream. An empty URL excepts none.
type noPost struct {
	next http.RoundTripper
	url  string
}

// RoundTrip implements http.RoundTripper.
func (n noPost) RoundTrip(r *http.Request) (*http.Response, error) {
	if n.url == "" || r.Method != http.MethodPost || r.URL.String() != n.url {
		return n.next.RoundTrip(r)
	}
	if r.Body != nil {
		r.Body.Close()
	}
	return &http.Response{
		Status: "405 Method Not Allowed", StatusCode: http.StatusMethodNotAllowed, Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1,
		Header: http.Header{}, Body: http.NoBody, Request: r,
	}, nil
}

// socketSide connects to a unix or TCP socket.
func (f *bridgeFlags) socketSide(kind, where string) (*upstreamTarget, error) {
	for _, name := range append(onlyHTTP, "env", "cwd", "config", "server") {
		if f.target.given(name) {
			return nil, usagef("bridge: --%s does not apply to a socket", name)
		}
	}
	if f.target.transport != transportAuto {
		return nil, usagef("bridge: --transport does not apply to a socket")
	}
	framing := framingOr(f.target.framing, jsonrpc.FramingLine)
	return &upstreamTarget{name: safeLine(kind + ":" + where), connect: socketConnect(kind, where, framing, f.maxFrame)}, nil
}

// socketConnect returns a function that connects to a unix or TCP socket.
func socketConnect(kind, where string, framing jsonrpc.Framing, maxFrame int) bridgeConnect {
	dial := &net.Dialer{KeepAlive: 15 * time.Second}
	return func(ctx context.Context, _ io.Writer) (jsonrpc.Framer, error) {
		conn, err := dial.DialContext(ctx, kind, where)
		if err != nil {
			return nil, err
		}
		return jsonrpc.NewFramer(conn, &jsonrpc.FramerOptions{Framing: framing, MaxFrame: maxFrame}), nil
	}
}
