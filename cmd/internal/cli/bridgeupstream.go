package cli

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"net/http"
	"os"
	"os/exec"
	"time"

	"mcpwire/cmd/internal/exit"
	"mcpwire/cmd/internal/proxy/endpoint"
	"mcpwire/cmd/internal/proxy/tap"
	"mcpwire/cmd/internal/text/safe"
	"mcpwire/internal/proc/environ"
	"mcpwire/internal/proxy/bridge"
	"mcpwire/jsonrpc"
	"mcpwire/stdio"
	"mcpwire/streamable"
)

// inPath returns an error if the program is not found in PATH.
func inPath(program string) error {
	if _, err := exec.LookPath(program); err != nil && !errors.Is(err, exec.ErrDot) {
		start := &tap.StartError{Command: program, Err: err}
		hint := "check the command's path"
		if errors.Is(err, exec.ErrNotFound) {
			hint = "the program is not in the PATH set by the host: use its full path"
		}
		return exit.Fail(exit.Unreachable, "spawn", hint, start)
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
		return endpoint.StartProcess(ctx, &cmd)
	}}
}

// urlSide connects over HTTP. All connections share one transport and its knowledge of the server's
// tools.
func (f *bridgeFlags) urlSide(e *env, t *targetSpec, log *slog.Logger) (*upstreamTarget, error) {
	side, err := f.httpSide(e, t)
	if err != nil {
		return nil, err
	}
	transport := streamable.NewTransport(t.url, &streamable.TransportOptions{
		HTTPClient: &http.Client{Transport: bridge.OuterTransport(side)}, Header: t.header, NoSSE: t.transport == transportHTTP, MaxFrame: f.maxFrame, UnavailableTimeout: endpoint.UnavailableTimeout, Logger: log,
	})
	return &upstreamTarget{name: nameOfURL(t.url), url: t.url, http: true, login: side.clock.last, connect: func(ctx context.Context, _ io.Writer) (jsonrpc.Framer, error) {
		return transport.Connect(ctx)
	}}, nil
}

// httpSide returns the round tripper for the requests to the server. Unlike that of other commands,
// it lets a user log in although standard input belongs to a host.
func (f *bridgeFlags) httpSide(e *env, t *targetSpec) (*httpSide, error) {
	conf, err := f.target.tls()
	if err != nil {
		return nil, err
	}
	recorded := bridge.Transport(endpoint.Transport(conf, f.target.connectTimeout))
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

// socketSide connects to a unix or TCP socket.
func (f *bridgeFlags) socketSide(kind, where string) (*upstreamTarget, error) {
	for _, name := range append(onlyHTTP, "env", "cwd", "config", "server") {
		if f.target.given(name) {
			return nil, exit.Usagef("bridge: --%s does not apply to a socket", name)
		}
	}
	if f.target.transport != transportAuto {
		return nil, exit.Usagef("bridge: --transport does not apply to a socket")
	}
	framing := endpoint.FramingOr(f.target.framing, jsonrpc.FramingLine)
	return &upstreamTarget{name: safe.Line(kind + ":" + where), connect: endpoint.Socket(kind, where, framing, f.maxFrame)}, nil
}
