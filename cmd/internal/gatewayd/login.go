package gatewayd

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/url"
	"sync"
	"time"

	"mcpwire/cmd/internal/exit"
	"mcpwire/cmd/internal/proxy/gateway"
	gatewayconfig "mcpwire/cmd/internal/proxy/gateway/config"
	gatewaylogin "mcpwire/cmd/internal/proxy/gateway/login"
	"mcpwire/internal/base/seal"
	"mcpwire/internal/net/httpserve"
	"mcpwire/internal/net/loopback"
)

// logins are the logins of the callers of a gateway.
type logins struct {
	*gatewaylogin.Logins
	// listener is where the pages are served. It is nil if they are at the address for clients.
	listener net.Listener
	// ring seals stored tokens. It is nil without keys.
	ring *seal.Ring
}

// loginsOf returns the logins of a configuration whose pages are at an address if it has no URL for
// them. authenticated says that callers have principals. folder is where tokens are stored, or "".
func loginsOf(c *gatewayconfig.Config, address, folder string, authenticated bool, log *slog.Logger) (*logins, error) {
	o := &gatewaylogin.Options{URL: c.Login.URL, Folder: folder, Logger: log}
	if o.URL == "" && c.Auth != nil && c.Auth.Resource != "" && authenticated {
		if u, err := url.Parse(c.Auth.Resource); err == nil {
			o.URL = u.Scheme + "://" + u.Host
		}
	}
	if o.URL == "" {
		o.URL = "http://" + address
		if c.Listen.TLS != nil && c.Login.Address == "" {
			o.URL = "https://" + address
		}
	}
	if in := c.Login.Identity; in != nil && authenticated {
		o.Identity = in
		if !in.Secret.IsZero() {
			var err error
			if o.IdentitySecret, err = in.Secret.Resolve(); err != nil {
				return nil, c.Errorf("login.identity.secret", "login.identity.secret: %v", err)
			}
		}
	}
	l := &logins{}
	keys, err := c.Secrets()
	if err != nil {
		return nil, err
	}
	if keys != nil {
		l.ring = &seal.Ring{}
		if err := l.ring.Replace(keys...); err != nil {
			return nil, c.Errorf("keys", "keys: %v", err)
		}
	}
	o.Ring = l.ring
	if l.Logins, err = gatewaylogin.New(o); err != nil {
		return nil, c.Errorf("login", "%v", err)
	}
	return l, nil
}

// openLogins makes the logins of the gateway, and listens for browsers if that is not at the
// address for clients.
func (p *process) openLogins(c *gatewayconfig.Config) error {
	_, _, socket := gatewayconfig.SocketAddress(p.address)
	separate := c.Login.Address != "" || socket || p.address == "stdio"
	address := p.address
	var listener net.Listener
	if !separate {
		host, port, err := net.SplitHostPort(address)
		if err != nil || port == "0" && c.Login.URL == "" {
			separate = true // the address is not known yet
		}
		if host == "" || !loopback.IsHost(host) {
			host = "127.0.0.1"
		}
		address = net.JoinHostPort(host, port)
	}
	if separate {
		l, err := net.Listen("tcp", withHost(cmp.Or(c.Login.Address, ":0")))
		if err != nil {
			return exit.Fail(exit.Unexpected, "listen", "another program may be listening there", c.Errorf("login.address", "login.address: %v", err))
		}
		listener, address = l, l.Addr().String()
	}
	folder, err := loginFolderOf(c, p.path)
	if err == nil {
		p.logins, err = loginsOf(c, address, folder, p.remote && !socket, p.log)
	}
	if err != nil {
		if listener != nil {
			listener.Close()
		}
		return err
	}
	p.logins.listener = listener
	p.logins.Notify(func(r *gateway.CallRecord) {
		if c := p.now(); c != nil && c.policy.audit != nil {
			c.policy.audit.Record(r)
		}
	}, func(upstream string, at time.Time, of func(context.Context) bool) {
		if p.gateway != nil {
			p.gateway.LoginChanged(upstream, at, of)
		}
	})
	return nil
}

// serveLogins serves the pages at their own address, if they have one, until ctx ends.
func (p *process) serveLogins(ctx context.Context, background *sync.WaitGroup) {
	if p.logins == nil || p.logins.listener == nil {
		return
	}
	p.log.Info("login pages", "address", p.logins.listener.Addr())
	background.Go(func() {
		o := &httpserve.Options{AllowRemote: p.now().Login.Identity != nil, MaxConns: maxAdminConns, Logger: p.log}
		if err := httpserve.Serve(ctx, p.logins.listener, p.logins, o); err != nil {
			p.log.Error("login pages", "error", err)
		}
	})
}

// close ends the logins. l may be nil.
func (l *logins) close() {
	if l == nil {
		return
	}
	l.Close()
	if l.listener != nil {
		l.listener.Close()
	}
}

// login returns the logins to an upstream.
func (b *upstreamBuilder) login(name, server string, c *gatewayconfig.UpstreamLogin) (*gatewaylogin.Upstream, error) {
	if b.logins == nil {
		return nil, errors.New("the first credentials.login needs a restart of the gateway: no change was applied")
	}
	o := gatewaylogin.UpstreamOptions{Name: name, Server: server, UpstreamLogin: *c}
	if !c.Secret.IsZero() {
		var err error
		if o.ClientSecret, err = c.Secret.Resolve(); err != nil {
			return nil, fmt.Errorf("credentials.login.secret: %w", err)
		}
	}
	return b.logins.Upstream(o)
}

// loginFolderOf returns the folder for the tokens of a configuration, whose path is given, or "" if
// they are in memory.
func loginFolderOf(c *gatewayconfig.Config, path string) (string, error) {
	switch c.Login.Store {
	case "memory":
		return "", nil
	case "":
		return stateFile(path, ".logins")
	}
	return c.Login.Store, nil
}

// StoredLogins returns the logins that a configuration has stored.
func StoredLogins(ctx context.Context, path string) ([]gatewaylogin.Stored, error) {
	conf, err := gatewayconfig.Load(path)
	if err != nil {
		return nil, configurationError(path, err)
	}
	folder, err := loginFolderOf(conf, path)
	if err != nil {
		return nil, err
	}
	if folder == "" {
		return nil, exit.Usagef("gateway logins: login.store is memory: only the running gateway has the logins, and a restart removes them")
	}
	return gatewaylogin.List(ctx, folder)
}
