package connect

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"net/http"
	"os"
	"os/exec"
	"time"

	"mcpwire/cmd/internal/cli/kit"
	"mcpwire/cmd/internal/cli/targets"
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
func (f *bridgeFlags) processSide(e *kit.Env, t *targets.Spec) *upstreamTarget {
	show := kit.NewTailWriter(e.Stderr)
	base := stdio.Command(t.Command[0], t.Command[1:]...)
	base.Dir, base.Env, base.Framing, base.MaxFrame = t.Dir, t.Env, f.target.Framing, f.maxFrame
	// Hosts give the bridge the variables of the server; only the secret of the bridge is not one.
	base.EnvAllow = environ.Names(nil, []string{f.http.tokenEnv})
	return &upstreamTarget{name: t.CaptureName(), process: true, readyFor: time.Minute, connect: func(ctx context.Context, stderr io.Writer) (jsonrpc.Framer, error) {
		cmd := *base
		cmd.Stderr = io.MultiWriter(show, stderr)
		return endpoint.StartProcess(ctx, &cmd)
	}}
}

// urlSide connects over HTTP. All connections share one transport and its knowledge of the server's
// tools.
func (f *bridgeFlags) urlSide(e *kit.Env, t *targets.Spec, log *slog.Logger) (*upstreamTarget, error) {
	side, err := f.httpSide(e, t)
	if err != nil {
		return nil, err
	}
	transport := streamable.NewTransport(t.URL, &streamable.TransportOptions{
		HTTPClient: &http.Client{Transport: bridge.OuterTransport(side)}, Header: t.Header, NoSSE: t.Transport == targets.TransportHTTP, MaxFrame: f.maxFrame, UnavailableTimeout: endpoint.UnavailableTimeout, Logger: log,
	})
	return &upstreamTarget{name: nameOfURL(t.URL), url: t.URL, http: true, login: side.LastLogin, connect: func(ctx context.Context, _ io.Writer) (jsonrpc.Framer, error) {
		return transport.Connect(ctx)
	}}, nil
}

// httpSide returns the round tripper for the requests to the server. Unlike that of other commands,
// it lets a user log in although standard input belongs to a host.
func (f *bridgeFlags) httpSide(e *kit.Env, t *targets.Spec) (*targets.HTTPSide, error) {
	conf, err := f.target.TLS()
	if err != nil {
		return nil, err
	}
	recorded := bridge.Transport(endpoint.Transport(conf, f.target.ConnectTimeout))
	h := &targets.HTTPSide{Next: recorded}
	if t.Transport == targets.TransportSSE {
		h.SSE = t.URL
	}
	how, err := f.target.Login(e, t)
	if err != nil || how == targets.NoLogin {
		return h, err
	}
	if how == targets.ByStore && os.Getenv("CI") == "" {
		how = targets.ByBrowser
	}
	h.Interactive = how == targets.ByBrowser
	// browse is nil on a terminal whose lines belong to a client: there the user opens the page.
	var browse targets.BrowseFunc
	switch {
	case !e.CanAsk():
		browse = targets.OpenBrowser
	case f.listen != "":
		browse = targets.AskFirst(e.Stderr, e.Prompter.Ask, targets.OpenBrowser)
	}
	h.Next, err = f.target.Authorized(e, t, h, targets.Watcher{Base: recorded, Refused: &h.Refused}, conf, how, browse)
	return h, err
}

// socketSide connects to a unix or TCP socket.
func (f *bridgeFlags) socketSide(kind, where string) (*upstreamTarget, error) {
	for _, name := range append(targets.OnlyHTTP, "env", "cwd", "config", "server") {
		if f.target.Given(name) {
			return nil, exit.Usagef("bridge: --%s does not apply to a socket", name)
		}
	}
	if f.target.Transport != targets.TransportAuto {
		return nil, exit.Usagef("bridge: --transport does not apply to a socket")
	}
	framing := endpoint.FramingOr(f.target.Framing, jsonrpc.FramingLine)
	return &upstreamTarget{name: safe.Line(kind + ":" + where), connect: endpoint.Socket(kind, where, framing, f.maxFrame)}, nil
}
