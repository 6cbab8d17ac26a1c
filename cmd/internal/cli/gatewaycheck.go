package cli

import (
	"errors"
	"fmt"
	"log/slog"
	"strings"

	"github.com/spf13/cobra"

	"mcpwire/cmd/internal/proxy/gateway"
	gatewayconfig "mcpwire/cmd/internal/proxy/gateway/config"
	"mcpwire/cmd/internal/proxy/gateway/policy"
)

func newGatewayCheckCommand(e *env) *cobra.Command {
	return &cobra.Command{
		Use:   "check FILE",
		Short: "check the configuration of a gateway",
		Long: `Check a configuration without starting or connecting to anything. All errors are
printed, one per line, as FILE:LINE:COLUMN: MESSAGE.

If the file itself is valid, check also looks for the environment variables,
files, folders and programs that it names. Run it on the machine and with the
environment of the gateway. If it finds no error, it prints for each upstream
which clients share its process or session.

Exit status: 0 valid, 6 errors, 1 the file cannot be read.`,
		Example:           "  mcpwire gateway check gateway.yaml",
		Args:              oneFile,
		ValidArgsFunction: completeConfiguration,
		RunE: func(_ *cobra.Command, args []string) error {
			c, found, err := checkGateway(args[0])
			if err != nil {
				return err
			}
			var lines []string
			for _, one := range found {
				lines = append(lines, one.Error())
			}
			if len(found) == 0 {
				for _, u := range c.Upstreams {
					lines = append(lines, u.Name+": "+sharingOf(c, u))
				}
			}
			for _, line := range lines {
				if _, err := fmt.Fprintln(e.stdout, safeLine(line)); err != nil {
					return err
				}
			}
			if len(found) > 0 {
				return &exitStatus{exitFindings}
			}
			return nil
		},
	}
}

// sharingOf says which clients share the process, connection or session of an upstream.
func sharingOf(c *gatewayconfig.Config, u *gatewayconfig.Upstream) string {
	_, _, socket := gatewayconfig.SocketAddress(c.Listen.Address)
	users := !socket && c.Auth != nil && len(c.Auth.Issuers) > 0
	ofUser := u.Credentials != nil && (u.Credentials.Exchange != nil || u.Credentials.Login != nil)
	switch {
	case c.Listen.Address == "stdio":
		return "used by the one client of the gateway"
	case u.Isolation == gateway.IsolateNone.String() && !ofUser:
		return "shared by all clients (isolation: shared)"
	case u.Isolation != gateway.IsolateClients.String() && users:
		return "shared by the clients of each user, and by no two users"
	case u.Isolation != gateway.IsolateClients.String():
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

// checkGateway returns a configuration, and what is wrong with it, or with this machine for it.
func checkGateway(path string) (c *gatewayconfig.Config, found gatewayconfig.Errors, err error) {
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

// oneFile checks the arguments of a command that takes the configuration of a gateway.
func oneFile(cmd *cobra.Command, args []string) error {
	switch len(args) {
	case 0:
		return usageHintf("mcpwire gateway import writes one, and doc/gateway.md explains it", "%s: missing the configuration: give its file", strings.TrimPrefix(cmd.CommandPath(), "mcpwire "))
	case 1:
		return nil
	}
	return usagef("%s: unexpected argument %q: it takes one file", strings.TrimPrefix(cmd.CommandPath(), "mcpwire "), args[1])
}

// completeConfiguration completes the names of files in YAML and JSON.
func completeConfiguration(_ *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
	if len(args) > 0 {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	return []string{"yaml", "yml", "json"}, cobra.ShellCompDirectiveFilterFileExt
}

func newGatewaySchemaCommand(e *env) *cobra.Command {
	return &cobra.Command{
		Use:   "schema",
		Short: "print the JSON Schema of the configuration",
		Long: `Print the JSON Schema of the configuration (draft 2020-12), for editors. Those
that know the YAML Language Server use it if the first line of a configuration
is, for example:

  # yaml-language-server: $schema=./gateway.schema.json`,
		Example: "  mcpwire gateway schema > gateway.schema.json",
		Args:    flagsOnly,
		RunE: func(*cobra.Command, []string) error {
			_, err := e.stdout.Write(gatewayconfig.Schema)
			return err
		},
	}
}
