package gatewayd

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"time"

	"mcpwire/auth"
	"mcpwire/capture"
	"mcpwire/cmd/internal/proxy/endpoint"
	"mcpwire/cmd/internal/proxy/gateway"
	gatewayconfig "mcpwire/cmd/internal/proxy/gateway/config"
	"mcpwire/cmd/internal/proxy/gateway/policy"
	"mcpwire/cmd/internal/text/safe"
	"mcpwire/internal/proxy/bridge"
	"mcpwire/internal/trace/textlines"
	"mcpwire/jsonrpc"
	"mcpwire/stdio"
	"mcpwire/streamable"
)

// An upstreamBuilder makes the upstreams of a gateway from a configuration.
type upstreamBuilder struct {
	conf *gatewayconfig.Config
	log  *slog.Logger
	// remote reports whether clients may belong to other users.
	remote bool
	// tokens has the tokens of callers. It is nil if callers have none.
	tokens *policy.CallerTokens
	// logins is nil if callers log in to no upstream.
	logins *logins
	// node is nil outside a cluster.
	node *Node
}

// build returns the upstreams that are not disabled. The error is [gatewayconfig.Errors].
func (b *upstreamBuilder) build() ([]gateway.Upstream, error) {
	var list []gateway.Upstream
	var errs gatewayconfig.Errors
	for _, u := range b.conf.Upstreams {
		if u.Disabled {
			continue
		}
		one, err := b.upstream(u)
		if err != nil {
			located, ok := errors.AsType[*gatewayconfig.Error](err)
			if !ok {
				located = b.conf.Errorf("upstreams."+u.Name, "upstreams.%s: %v", u.Name, err)
			}
			errs = append(errs, located)
			continue
		}
		list = append(list, one)
	}
	if errs != nil {
		return nil, errs
	}
	return list, nil
}

// defaultConnectTime limits the time to connect to an upstream.
const defaultConnectTime = 30 * time.Second

// upstream returns one upstream. It starts nothing.
func (b *upstreamBuilder) upstream(u *gatewayconfig.Upstream) (gateway.Upstream, error) {
	out := gateway.Upstream{Name: u.Name, Isolation: gateway.Isolation(u.Isolation), Rename: u.Rename, RequirePin: u.Pin == string(policy.PinHide)}
	var err error
	if out.Fingerprint, err = b.conf.Fingerprint(u); err != nil {
		return out, err
	}
	limits := b.conf.Limits.Upstream
	out.Bridge = bridge.Options{
		ConnectTimeout: u.Timeouts.Connect.Or(defaultConnectTime), CallTimeout: u.Timeouts.Call.Or(0), RestartWait: u.Timeouts.Restart.Or(0),
		IdleTimeout: u.Idle.Or(gatewayconfig.DefaultIdle), DrainTimeout: b.conf.Drain.Or(gatewayconfig.DefaultDrain),
		MaxSessions:         b.conf.Listen.MaxSessions(),
		MaxServers:          cmp.Or(u.Limits.Processes, limits.Processes, gatewayconfig.DefaultProcesses),
		MaxServersPerCaller: cmp.Or(u.Limits.ProcessesPerCaller, limits.ProcessesPerCaller, gatewayconfig.DefaultPerCaller),
		Remote:              b.remote,
		Hints: bridge.Hints{
			Login:       "the operator of the gateway configures its credentials",
			Certificate: "the operator of the gateway configures tls.ca",
		},
	}
	if u.Era != "" {
		if out.Bridge.ServerEra, err = bridge.ParseEra(u.Era); err != nil {
			return out, err
		}
	}
	switch {
	case len(u.Command) > 0:
		out.Bridge.Connect, out.Bridge.ReadyFor = b.process(u), time.Minute
		if b.node != nil {
			b.node.Share(&out)
		}
	case u.Socket != "":
		kind, where, _ := gatewayconfig.SocketAddress(u.Socket)
		out.Bridge.Connect = endpoint.Socket(kind, where, framingOf(u.Framing), 0)
	default:
		out.Bridge.HTTP = true
		out.PerPrincipal = u.Credentials != nil && (u.Credentials.Exchange != nil || u.Credentials.Login != nil)
		err = b.remoteServer(u, &out)
	}
	return out, err
}

// framingOf returns the framing of a configuration.
func framingOf(name string) jsonrpc.Framing {
	if name == jsonrpc.FramingHeader.String() {
		return jsonrpc.FramingHeader
	}
	return jsonrpc.FramingLine
}

// process returns a function that starts the process of an upstream. It logs its standard error.
func (b *upstreamBuilder) process(u *gatewayconfig.Upstream) endpoint.Connect {
	base := stdio.Command(u.Command[0], slices.Concat(u.Command[1:], u.Args)...)
	base.Dir, base.Framing, base.EnvAllow = u.Cwd, framingOf(u.Framing), b.conf.Inherited(u)
	if b.node != nil {
		base.StopWait, base.TermWait = nodeStopWait, nodeTermWait
	}
	return func(ctx context.Context, stderr io.Writer) (jsonrpc.Framer, error) {
		cmd := *base
		for _, name := range slices.Sorted(maps.Keys(u.Env)) {
			text, err := u.Env[name].Resolve()
			if err != nil {
				return nil, fmt.Errorf("environment variable %s of the server: %w", name, err)
			}
			cmd.Env = append(cmd.Env, name+"="+text)
		}
		cmd.Stderr = io.MultiWriter(stderrLog(b.log, u.Name), stderr)
		return endpoint.StartProcess(ctx, &cmd)
	}
}

// remoteServer sets how to connect to an upstream over HTTP, and how callers log in to it. All
// connections share one transport and its knowledge of the server's tools.
func (b *upstreamBuilder) remoteServer(u *gatewayconfig.Upstream, out *gateway.Upstream) error {
	address, err := u.URL.Resolve()
	if err != nil {
		return fmt.Errorf("url: %w", err)
	}
	if u, err := url.Parse(address); err != nil || u.Hostname() == "" || u.User != nil || u.Scheme != "http" && u.Scheme != "https" {
		return errors.New("url: not the URL of a server (such as http://127.0.0.1:8080/mcp), or one with a user name")
	}
	tls := gatewayconfig.ClientTLS{}
	if u.TLS != nil {
		tls = *u.TLS
	}
	conf, err := endpoint.TLS(string(tls.CA), tls.Insecure)
	if err != nil {
		return fmt.Errorf("tls.ca: %w", err)
	}
	side := endpoint.NoPost{Next: bridge.Transport(endpoint.Transport(conf, u.Timeouts.Connect.Or(defaultConnectTime)))}
	if u.Transport == "sse" {
		side.URL = address
	}
	credentials := policy.Credentials{Headers: map[string]policy.Source{}, Tokens: b.tokens, Logger: b.log.With("upstream", u.Name)}
	for name, value := range u.Headers {
		credentials.Headers[name] = func() (auth.Secret, error) {
			text, err := value.Resolve()
			return auth.NewSecret(text), err
		}
	}
	if c := u.Credentials; c != nil {
		credentials.Client, credentials.Exchange = c.Client, c.Exchange
		if !c.Token.IsZero() {
			credentials.Token = c.Token.Resolve
		}
	}
	authenticated, err := credentials.Transport(address, side)
	if err != nil {
		return fmt.Errorf("credentials: %w", err)
	}
	if u.Credentials != nil && u.Credentials.Login != nil {
		login, err := b.login(u.Name, address, u.Credentials.Login)
		if err != nil {
			return err
		}
		out.Login, authenticated = login, login.Transport(authenticated)
	}
	transport := streamable.NewTransport(address, &streamable.TransportOptions{
		HTTPClient: &http.Client{Transport: bridge.OuterTransport(authenticated)}, NoSSE: u.Transport == "http", UnavailableTimeout: endpoint.UnavailableTimeout, Logger: b.log,
	})
	out.Bridge.Connect = func(ctx context.Context, _ io.Writer) (jsonrpc.Framer, error) { return transport.Connect(ctx) }
	return nil
}

// maxStderrLine limits the logged bytes of a line.
const maxStderrLine = 8 << 10

// stderrLog returns a writer that logs the lines that a server writes to standard error, except
// blank ones.
func stderrLog(log *slog.Logger, upstream string) io.Writer {
	return textlines.New(func(e *capture.Event) uint64 {
		line := bytes.TrimSpace(e.Data[:min(len(e.Data), maxStderrLine)])
		if len(line) > 0 && e.Part <= 1 { // the beginning of a long line
			log.Info("stderr", "upstream", upstream, "line", safe.Line(string(line)))
		}
		return 0
	}, capture.Event{})
}
