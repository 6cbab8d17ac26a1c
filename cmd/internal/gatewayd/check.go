package gatewayd

import (
	"errors"
	"log/slog"

	"mcpwire/cmd/internal/proxy/gateway"
	gatewayconfig "mcpwire/cmd/internal/proxy/gateway/config"
	"mcpwire/cmd/internal/proxy/gateway/policy"
)

// Sharing says which clients share the process, connection or session of an upstream.
func Sharing(c *gatewayconfig.Config, u *gatewayconfig.Upstream) string {
	_, _, socket := gatewayconfig.SocketAddress(c.Listen.Address)
	users := !socket && c.Auth != nil && len(c.Auth.Issuers) > 0
	ofUser := u.Credentials != nil && (u.Credentials.Exchange != nil || u.Credentials.Login != nil)
	switch isolation := gateway.Isolation(u.Isolation); {
	case c.Listen.Address == "stdio":
		return "used by the one client of the gateway"
	case isolation == gateway.IsolateNone && !ofUser:
		return "shared by all clients (isolation: shared)"
	case isolation != gateway.IsolateClients && users:
		return "shared by the clients of each user, and by no two users"
	case isolation != gateway.IsolateClients:
		return "shared by all clients: without auth.issuers, the gateway cannot tell users apart"
	}
	const each = "each session of a legacy client has its own; modern clients have no sessions: "
	switch {
	case users:
		return each + "those of one user share one"
	case socket || c.Auth != nil:
		return each + "they all share one, since the gateway cannot tell users apart"
	}
	return each + "those at one network address share one"
}

// Check returns a configuration, and what is wrong with it, or with this machine for it.
func Check(path string) (c *gatewayconfig.Config, found gatewayconfig.Errors, err error) {
	c, err = gatewayconfig.Load(path)
	if errors.As(err, &found) || err != nil {
		if found != nil {
			err = nil
		}
		return c, found, err
	}
	if _, err := viewsOf(c); err != nil {
		var one *gatewayconfig.Error
		if !errors.As(err, &one) {
			return nil, nil, err
		}
		found = append(found, one)
	}
	if found = append(found, c.Check()...); len(found) > 0 {
		return c, found, nil
	}
	builder := &upstreamBuilder{conf: c, log: slog.New(slog.DiscardHandler), tokens: &policy.CallerTokens{}}
	if c.HasLogins() {
		logins, err := loginsOf(c, "127.0.0.1:1", "", true, builder.log)
		if one, ok := errors.AsType[*gatewayconfig.Error](err); ok {
			return c, append(found, one), nil
		}
		if err != nil {
			return nil, nil, err
		}
		defer logins.close()
		builder.logins = logins
	}
	if _, err := builder.build(); err != nil && !errors.As(err, &found) {
		return nil, nil, err
	}
	return c, found, nil
}
