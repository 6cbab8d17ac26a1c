package connect

import (
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"mcpwire/cmd/internal/cli/kit"
	"mcpwire/cmd/internal/cli/targets"
	"mcpwire/cmd/internal/exit"
	"mcpwire/cmd/internal/gatewayd"
	gatewaylogin "mcpwire/cmd/internal/proxy/gateway/login"
	"mcpwire/cmd/internal/text/safe"
)

func newGatewayLoginsCommand(e *kit.Env) *cobra.Command {
	c := &cobra.Command{
		Use:   "logins FILE | logins revoke FILE USER [UPSTREAM]",
		Short: "show and remove the logins of callers",
		Long: `Show who has logged in to which upstream with credentials.login in the
configuration FILE, and when the tokens were last renewed. A user is the issuer
and the subject of a caller's token, or local. Tokens are not shown.`,
		Example:           "  mcpwire gateway logins gateway.yaml\n  mcpwire gateway logins revoke gateway.yaml \"https://idp.example.com alice\"",
		Args:              oneFile,
		ValidArgsFunction: completeConfiguration,
		RunE: func(cmd *cobra.Command, args []string) error {
			list, err := gatewayd.StoredLogins(cmd.Context(), args[0])
			if err != nil {
				return err
			}
			for _, l := range list {
				if err := printLogin(e, l); err != nil {
					return err
				}
			}
			if len(list) == 0 {
				_, err := fmt.Fprintln(e.Stderr, "mcpwire: nobody has logged in")
				return err
			}
			return nil
		},
	}
	c.AddCommand(&cobra.Command{
		Use:   "revoke FILE USER [UPSTREAM]",
		Short: "remove the logins of a user",
		Long: `Remove the tokens of a user, or only those for an upstream, and print what was
removed. USER is as mcpwire gateway logins prints it, or the subject alone. A
running gateway notices it within seconds. The authorization server is not told:
to make the tokens invalid, end the session there.`,
		Example: "  mcpwire gateway logins revoke gateway.yaml alice\n  mcpwire gateway logins revoke gw.yaml \"https://idp.example.com alice\" github",
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) < 2 || len(args) > 3 {
				return exit.Usagef("gateway logins revoke: want the configuration, the user, and perhaps the name of an upstream")
			}
			return nil
		},
		ValidArgsFunction: completeConfiguration,
		RunE: func(cmd *cobra.Command, args []string) error {
			list, err := gatewayd.StoredLogins(cmd.Context(), args[0])
			if err != nil {
				return err
			}
			removed := 0
			for _, l := range list {
				_, subject, _ := strings.Cut(l.User, " ")
				if l.User != args[1] && subject != args[1] || len(args) > 2 && l.Upstream != args[2] {
					continue
				}
				if err := l.Revoke(cmd.Context()); err != nil {
					return err
				}
				removed++
				if err := printLogin(e, l); err != nil {
					return err
				}
			}
			if removed == 0 {
				return exit.Usagef("gateway logins revoke: %s has not logged in (mcpwire gateway logins %s shows who has)", safe.Line(args[1]), safe.Line(args[0]))
			}
			return nil
		},
	})
	return c
}

func printLogin(e *kit.Env, l gatewaylogin.Stored) error {
	_, err := fmt.Fprintf(e.Stdout, "%s\t%s\t%s\t%s\n", safe.Line(l.User), safe.Line(l.Upstream), targets.SafeURL(l.Server), l.Changed.Local().Format("2006-01-02 15:04:05"))
	return err
}
