package record

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/url"
	"os"
	"os/signal"
	"strings"
	"syscall"

	"github.com/spf13/cobra"

	"mcpwire/capture"
	"mcpwire/cmd/internal/cli/kit"
	"mcpwire/cmd/internal/exit"
	"mcpwire/cmd/internal/proxy/endpoint"
	"mcpwire/cmd/internal/proxy/taphttp"
	"mcpwire/cmd/internal/text/safe"
	"mcpwire/internal/net/httpserve"
)

// runTapHTTP taps an HTTP server until a signal arrives.
func runTapHTTP(cmd *cobra.Command, e *kit.Env, f *tapFlags, rawURL string) error {
	ctx, stop := signal.NotifyContext(cmd.Context(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	defer context.AfterFunc(ctx, stop)() // a second signal kills it
	u, err := f.serverURL(rawURL)
	if err != nil {
		return err
	}
	config, err := endpoint.TLS(f.caFile, f.insecure)
	if err != nil {
		return exit.Usagef("tap: --cacert: %w", err)
	}
	breakpoints, err := f.breakpoints()
	if err != nil {
		return err
	}
	name := f.name
	if name == "" {
		name = u.Host
	}
	opts := &taphttp.Options{TLS: config, Hosts: f.hosts, Origin: f.origin, Breakpoints: breakpoints, Name: name, Logger: f.logger(e)}
	if _, err := taphttp.New(u, nil, opts); err != nil { // before creating files
		return exit.Usagef("tap: %s", strings.TrimPrefix(err.Error(), "taphttp: "))
	}
	l, err := f.listenHTTP(ctx)
	if err != nil {
		return err
	}
	defer l.Close()
	logf := f.notes(e)
	rec, err := f.record(e, &recordingOf{transport: capture.TransportHTTP, name: name, url: u.String(), breakpoints: breakpoints}, logf)
	if err != nil {
		return err
	}
	if err := checkViewers(rec, e, breakpoints); err != nil {
		return err
	}
	defer rec.Finish(e.Stderr)
	if f.check {
		live := newLiveCheck(e.Stderr, capture.TransportHTTP)
		opts.Observe = live.observe
		defer live.close()
	}
	return f.serveTap(ctx, e, l, u, rec.Writer, opts)
}

// serveTap runs the tap.
func (f *tapFlags) serveTap(ctx context.Context, e *kit.Env, l net.Listener, u *url.URL, w *capture.Writer, opts *taphttp.Options) error {
	h, err := taphttp.New(u, w, opts)
	if err != nil {
		return err
	}
	scheme := "http"
	if f.tlsCert != "" {
		scheme = "https"
	}
	err = h.Serve(ctx, l, &taphttp.ServeOptions{
		AllowRemote: len(f.hosts) > 0, CertFile: f.tlsCert, KeyFile: f.tlsKey,
		OnListen: func(a net.Addr) {
			at := url.URL{Scheme: scheme, Host: a.String(), Path: u.Path, RawPath: u.RawPath, RawQuery: u.RawQuery}
			fmt.Fprintln(e.Stderr, "mcpwire: tap is listening: give clients url="+safe.Line(at.String())+" in place of "+safe.Line(u.String()))
		},
	})
	if errors.Is(err, httpserve.ErrRemoteAddress) {
		return exit.Fail(exit.Unexpected, "remote_address", "listen at 127.0.0.1, or set the host names that clients may use with --host; * allows any",
			fmt.Errorf("tap: not listening at %s, which other machines can reach", f.listen))
	}
	return err
}

// serverURL parses the URL of the server.
func (f *tapFlags) serverURL(raw string) (*url.URL, error) {
	u, err := url.Parse(raw)
	switch {
	case err != nil:
		if bad, ok := errors.AsType[*url.Error](err); ok {
			err = bad.Err // drop the URL: secrets
		}
		return nil, exit.Usagef("tap: the URL of the server: %w", err)
	case u.Scheme != "http" && u.Scheme != "https":
		return nil, exit.Usagef("tap: --listen is for a server on HTTP: %q does not begin with http:// or https://", raw)
	case (f.tlsCert == "") != (f.tlsKey == ""):
		return nil, exit.Usagef("tap: --tls-cert and --tls-key go together")
	case u.Scheme == "http" && (f.caFile != "" || f.insecure):
		return nil, exit.Usagef("tap: --cacert and --insecure are for a server with https")
	case f.caFile != "" && f.insecure:
		return nil, exit.Usagef("tap: --cacert and --insecure exclude each other")
	}
	return u, nil
}

// listenHTTP listens at the address for clients. Without a host, it listens on the loopback
// interface.
func (f *tapFlags) listenHTTP(ctx context.Context) (net.Listener, error) {
	host, port, err := net.SplitHostPort(f.listen)
	if err != nil {
		return nil, exit.Usagef("tap: invalid value %q for flag --listen: want an address and a port, such as 127.0.0.1:9000", f.listen)
	}
	if host == "" {
		host = "127.0.0.1"
	}
	var config net.ListenConfig
	l, err := config.Listen(ctx, "tcp", net.JoinHostPort(host, port))
	if err != nil {
		return nil, exit.Fail(exit.Unexpected, "listen", "another program may be listening there: choose another port, or 0 for any", err)
	}
	return l, nil
}
