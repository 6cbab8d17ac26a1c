package call

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"mcpwire/cmd/internal/cli/kit"
	"mcpwire/cmd/internal/exit"
	"mcpwire/cmd/internal/text/safe"
	"mcpwire/cmd/internal/trace/captures"
	"mcpwire/internal/text/plural"
	"mcpwire/oauth"
)

// NewAuthCommand returns the command auth.
func NewAuthCommand(e *kit.Env) *cobra.Command {
	c := &cobra.Command{
		Use:   "auth status [--json] | logout URL | logout --all",
		Short: "list and remove the tokens of logins",
		Long: `List the servers that you have logged in to with mcpwire, and remove their
tokens. mcpwire stores tokens in the file tokens.json in its folder, for all
commands. MCPWIRE_HOME changes the folder's location. To log in, run any command
with the server's URL on a terminal.`,
		Example: `  mcpwire auth status
  mcpwire auth logout https://example.com/mcp`,
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) > 0 {
				return exit.Usagef("auth: unknown command %q (want status or logout)%s", args[0], kit.DidYouMean(args[0], []string{"status", "logout"}))
			}
			return exit.Usagef("auth: missing the command: status or logout")
		},
		RunE: func(*cobra.Command, []string) error { return nil },
	}
	var asJSON bool
	status := &cobra.Command{
		Use:   "status [--json]",
		Short: "list the servers with a token",
		Long: `List the servers for which mcpwire has tokens, and when they expire. A token that
can be refreshed is renewed when it is needed. Tokens are not shown.`,
		Example: "  mcpwire auth status\n  mcpwire auth status --json | jq -r '.[].server'",
		Args:    kit.FlagsOnly,
		RunE:    func(cmd *cobra.Command, _ []string) error { return authStatus(cmd.Context(), e, asJSON, time.Now()) },
	}
	status.Flags().BoolVar(&asJSON, "json", false, "print an array of objects")
	var all bool
	logout := &cobra.Command{
		Use:   "logout URL | logout --all",
		Short: "remove the tokens of a server",
		Long: `Remove the tokens of a server from this machine. The authorization server is not
told: to make the tokens invalid, end the session there.`,
		Example: "  mcpwire auth logout https://example.com/mcp\n  mcpwire auth logout --all",
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) > 1 || all == (len(args) == 1) {
				return exit.Usagef("logout: want the URL of one server, or --all (mcpwire auth status lists them)")
			}
			return nil
		},
		ValidArgsFunction: func(cmd *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
			if len(args) > 0 {
				return nil, cobra.ShellCompDirectiveNoFileComp
			}
			_, logins, _ := storedLogins(cmd.Context())
			var names []string
			for _, l := range logins {
				names = append(names, l.Server)
			}
			return names, cobra.ShellCompDirectiveNoFileComp
		},
		RunE: func(cmd *cobra.Command, args []string) error { return authLogout(cmd.Context(), e, args) },
	}
	logout.Flags().BoolVar(&all, "all", false, "remove the tokens of all servers")
	c.AddCommand(status, logout)
	return c
}

// A login is a server with tokens.
type login struct {
	Server              string     `json:"server"`
	AuthorizationServer string     `json:"authorizationServer"`
	ClientID            string     `json:"clientId"`
	Account             string     `json:"account,omitempty"`
	Scopes              []string   `json:"scopes,omitempty"`
	Expires             *time.Time `json:"expires,omitempty"`
	Refreshable         bool       `json:"refreshable"`

	key oauth.RecordKey
}

// keyedStore is a store that knows its keys, as file stores do.
type keyedStore interface {
	oauth.Store
	Keys(ctx context.Context) ([]oauth.RecordKey, error)
}

// storedLogins returns the store of tokens and the servers in it.
func storedLogins(ctx context.Context) (keyedStore, []login, error) {
	dir, err := captures.StateDir()
	if err != nil {
		return nil, nil, err
	}
	file, err := oauth.NewFileStore(filepath.Join(dir, "tokens.json"))
	if err != nil {
		return nil, nil, exit.Fail(exit.Unexpected, "token_store", "MCPWIRE_HOME sets the folder of the file", err)
	}
	store, ok := file.(keyedStore)
	if !ok {
		return nil, nil, errors.New("the store of tokens cannot be listed")
	}
	keys, err := store.Keys(ctx)
	if err != nil {
		return nil, nil, err
	}
	list := []login{}
	for _, key := range keys {
		r, err := store.Load(ctx, key)
		if errors.Is(err, oauth.ErrNotStored) || err == nil && r.Tokens == nil {
			continue
		}
		if err != nil {
			return nil, nil, err
		}
		l := login{Server: safe.Line(key.Resource), AuthorizationServer: safe.Line(key.Issuer), ClientID: safe.Line(key.ClientID), Account: safe.Line(key.Account), key: key}
		for _, s := range r.Tokens.Granted {
			l.Scopes = append(l.Scopes, safe.Line(s))
		}
		if at := r.Tokens.Expiry; !at.IsZero() {
			l.Expires = &at
		}
		l.Refreshable = r.Tokens.Refresh.Reveal() != ""
		list = append(list, l)
	}
	slices.SortFunc(list, func(a, b login) int { return strings.Compare(a.Server, b.Server) })
	return store, list, nil
}

func authStatus(ctx context.Context, e *kit.Env, asJSON bool, now time.Time) error {
	_, list, err := storedLogins(ctx)
	if err != nil {
		return err
	}
	if asJSON {
		return kit.WriteJSON(e.Stdout, list)
	}
	if len(list) == 0 {
		fmt.Fprintln(e.Stderr, "no logins: mcpwire has no tokens")
		return nil
	}
	t := &kit.Table{Heads: []string{"SERVER", "STATUS", "SCOPES", "AUTHORIZATION SERVER"}}
	for _, l := range list {
		t.Add(l.Server, l.status(now), kit.OrDash(strings.Join(l.Scopes, " ")), l.AuthorizationServer)
	}
	return t.Print(e)
}

// status describes how long the tokens are valid.
func (l *login) status(now time.Time) string {
	switch {
	case l.Expires == nil:
		return "valid"
	case l.Expires.After(now):
		return "valid for " + kit.ShortTime(l.Expires.Sub(now).Round(time.Second))
	case l.Refreshable:
		return "to be refreshed"
	}
	return "expired"
}

// authLogout removes the tokens of the server with a URL, or of all without one.
func authLogout(ctx context.Context, e *kit.Env, args []string) error {
	store, list, err := storedLogins(ctx)
	if err != nil {
		return err
	}
	removed := 0
	var names []string
	for _, l := range list {
		names = append(names, l.Server)
		if len(args) > 0 && strings.TrimSuffix(l.key.Resource, "/") != strings.TrimSuffix(args[0], "/") {
			continue
		}
		// The second record says where the tokens of the server are.
		for _, key := range []oauth.RecordKey{l.key, {Resource: l.key.Resource, Account: l.key.Account}} {
			if err := store.Delete(ctx, key); err != nil {
				return exit.Fail(exit.Unexpected, "token_store", "", err)
			}
		}
		removed++
		if _, err := fmt.Fprintf(e.Stdout, "removed the tokens for %s\n", l.Server); err != nil {
			return err
		}
	}
	if len(args) > 0 && removed == 0 {
		return exit.UsageHintf("mcpwire auth status lists "+plural.Of(len(list), "server"), "logout: there are no tokens for %s%s", safe.Line(args[0]), kit.DidYouMean(args[0], names))
	}
	return nil
}
