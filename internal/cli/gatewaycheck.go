package cli

import (
	"errors"
	"fmt"
	"log/slog"
	"strings"

	"github.com/spf13/cobra"

	gatewayconfig "mcpwire/internal/proxy/gateway/config"
	"mcpwire/internal/proxy/gateway/policy"
)

func newGatewayCheckCommand(e *env) *cobra.Command {
	return &cobra.Command{
		Use:   "check FILE",
		Short: "check the configuration of a gateway",
		Long: `Check a configuration without starting or connecting to anything. All errors are
printed, one per line, as FILE:LINE:COLUMN: MESSAGE.

If the file itself is valid, check also looks for the environment variables,
files, folders and programs that it names. Run it on the machine and with the
environment of the gateway.

Exit status: 0 valid, 6 errors, 1 the file cannot be read.`,
		Example:           "  mcpwire gateway check gateway.yaml",
		Args:              oneFile,
		ValidArgsFunction: completeConfiguration,
		RunE: func(_ *cobra.Command, args []string) error {
			found, err := checkGateway(args[0])
			if err != nil {
				return err
			}
			for _, one := range found {
				if _, err := fmt.Fprintln(e.stdout, safeLine(one.Error())); err != nil {
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

// checkGateway returns what is wrong with a configuration, or with this machine for it.
func checkGateway(path string) (found gatewayconfig.Errors, err error) {
	c, err := gatewayconfig.Load(path)
	if errors.As(err, &found) || err != nil {
		if found != nil {
			err = nil
		}
		return found, err
	}
	if _, err := viewsOf(c); err != nil {
		var one *gatewayconfig.Error
		if !errors.As(err, &one) {
			return nil, err
		}
		found = append(found, one)
	}
	if found = append(found, c.Check()...); len(found) > 0 {
		return found, nil
	}
	builder := &upstreamBuilder{conf: c, log: slog.New(slog.DiscardHandler), tokens: &policy.CallerTokens{}}
	if c.HasLogins() {
		logins, err := loginsOf(c, "127.0.0.1:1", "", true, builder.log)
		if one, ok := errors.AsType[*gatewayconfig.Error](err); ok {
			return append(found, one), nil
		}
		if err != nil {
			return nil, err
		}
		defer logins.close()
		builder.logins = logins
	}
	if _, err := builder.build(); err != nil && !errors.As(err, &found) {
		return nil, err
	}
	return found, nil
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
