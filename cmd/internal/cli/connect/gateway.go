package connect

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"os"
	"strings"

	"github.com/spf13/cobra"

	"mcpwire/cmd/internal/cli/kit"
	"mcpwire/cmd/internal/cli/targets"
	"mcpwire/cmd/internal/exit"
	"mcpwire/cmd/internal/gatewayd"
	gatewayconfig "mcpwire/cmd/internal/proxy/gateway/config"
	gatewaylogin "mcpwire/cmd/internal/proxy/gateway/login"
	"mcpwire/cmd/internal/proxy/gateway/policy"
	"mcpwire/cmd/internal/proxy/recording"
	"mcpwire/cmd/internal/text/safe"
	"mcpwire/stdio"
)

const gatewayLong = `Serve many MCP servers at one endpoint. FILE is a configuration in YAML that
lists the servers: commands, URLs and sockets, of either era. Clients of both
eras see the tools of all servers. doc/gateway.md explains the file.

  upstreams:
    files: {command: [npx, -y, "@modelcontextprotocol/server-filesystem", .]}
    web: {url: https://example.com/mcp, credentials: {token: env:WEB_TOKEN}}

Clients connect to http://127.0.0.1:8080/mcp unless the file or --listen names
another address. With --stdio, there is one client, on standard input and output.
Use this in a host's configuration.

The names of tools and prompts are NAME__TOOL, with the name of the server in the
file. Servers are started when they are first needed. A server that fails costs
only its own tools, and is restarted with the next call.

When the file changes, or on SIGHUP, the gateway loads it again. Servers whose
entry has not changed keep their processes and sessions. If the new file is
invalid, the gateway logs line and column and goes on with the old one.

mcpwire watch shows the traffic of both sides live. With an admin address in the
file, /livez, /readyz and /startupz are for orchestrators, /metrics is for
Prometheus, and /upstreamz and /configz show the state as JSON.`

const gatewayExample = `  mcpwire gateway import > gateway.yaml   # the servers of hosts on this machine
  mcpwire gateway check gateway.yaml
  mcpwire gateway gateway.yaml

  # in a host's configuration, all servers as one
  {"command": "mcpwire", "args": ["gateway", "--stdio", "/path/gateway.yaml"]}`

// gatewayFlags are the flags of the gateway command.
type gatewayFlags struct {
	listen        string
	stdio         bool
	capture, name string
	recordIt      bool
	noWatch       bool
	redact        string
	json, verbose bool
}

// NewGatewayCommand returns the command gateway.
func NewGatewayCommand(e *kit.Env) *cobra.Command {
	f := &gatewayFlags{}
	c := &cobra.Command{
		Use:         "gateway [FLAGS] FILE | check FILE | import [HOST...] | logins FILE | pins FILE | schema",
		Short:       "serve many servers at one endpoint",
		Long:        gatewayLong,
		Example:     gatewayExample,
		Annotations: map[string]string{kit.OwnSignals: "true"},
		Args: func(cmd *cobra.Command, args []string) error {
			if len(args) > 0 {
				_, err := os.Stat(args[0])
				if hint := kit.DidYouMean(args[0], []string{"check", "import", "logins", "pins", "schema"}); err != nil && hint != "" {
					return exit.Usagef("gateway: no file or command %q%s", args[0], hint)
				}
			}
			return oneFile(cmd, args)
		},
		ValidArgsFunction: completeConfiguration,
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := f.check(cmd.Flags().Changed); err != nil {
				return err
			}
			return runGateway(cmd.Context(), e, f, args[0])
		},
	}
	fs := c.Flags()
	fs.StringVar(&f.listen, "listen", "", "`ADDRESS` for clients, in place of the one in the file")
	fs.BoolVar(&f.stdio, "stdio", false, "serve one client on standard input and output, in place of the address in the file")
	fs.StringVar(&f.capture, "capture", "", "record both sides to `FILE`, or with a number if it exists; compressed if it ends in .gz or .zst")
	fs.BoolVar(&f.recordIt, "record", false, "record both sides to the captures folder (mcpwire captures)")
	fs.StringVar(&f.name, "name", "", "`NAME` of the gateway in captures and mcpwire watch (default that of the file)")
	fs.BoolVar(&f.noWatch, "no-watch", false, "without a capture, do not let mcpwire watch connect; this saves some CPU time")
	fs.StringVar(&f.redact, "redact", "default", "what to redact in the capture: `WHAT` is default, or off for nothing")
	fs.BoolVar(&f.json, "log-json", false, "log in JSON, one object per line")
	fs.BoolVarP(&f.verbose, "verbose", "v", false, "log details, such as how connections open and close")
	// It fails only for an unknown flag.
	_ = c.RegisterFlagCompletionFunc("redact", cobra.FixedCompletions([]string{"default", "off"}, cobra.ShellCompDirectiveNoFileComp))
	c.AddCommand(newGatewayCheckCommand(e), newGatewayImportCommand(e), newGatewayLoginsCommand(e), newGatewayPinsCommand(e), newGatewaySchemaCommand(e))
	return c
}

// check returns an error for invalid flags and combinations. set reports whether a flag was given.
func (f *gatewayFlags) check(set func(name string) bool) error {
	switch {
	case f.stdio && set("listen"):
		return exit.Usagef("gateway: --stdio and --listen exclude each other")
	case f.capture != "" && f.recordIt:
		return exit.Usagef("gateway: --capture and --record exclude each other")
	case f.capture == "-":
		return exit.Usagef("gateway: --capture needs a file")
	case f.noWatch && (f.capture != "" || f.recordIt):
		return exit.Usagef("gateway: --no-watch is for a gateway without a capture")
	}
	if f.stdio {
		f.listen = "stdio"
	}
	return nil
}

func runGateway(ctx context.Context, e *kit.Env, f *gatewayFlags, path string) error {
	level := slog.LevelInfo
	if f.verbose {
		level = slog.LevelDebug
	}
	handler := stdio.NewLogHandler(e.Stderr, &stdio.LogOptions{Level: level, JSON: f.json})
	defer handler.Close()
	return gatewayd.Serve(ctx, path, &gatewayd.Options{
		Stdin: e.Stdin, Stdout: e.Stdout, Stderr: e.Stderr, Listen: f.listen, Name: f.name, Capture: f.capture, Record: f.recordIt, NoWatch: f.noWatch, Redact: recording.Redaction(f.redact),
		Logger: slog.New(handler),
	})
}

func newGatewayCheckCommand(e *kit.Env) *cobra.Command {
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
			c, found, err := gatewayd.Check(args[0])
			if err != nil {
				return err
			}
			var lines []string
			for _, one := range found {
				lines = append(lines, one.Error())
			}
			if len(found) == 0 {
				for _, u := range c.Upstreams {
					lines = append(lines, u.Name+": "+gatewayd.Sharing(c, u))
				}
			}
			for _, line := range lines {
				if _, err := fmt.Fprintln(e.Stdout, safe.Line(line)); err != nil {
					return err
				}
			}
			if len(found) > 0 {
				return &exit.Status{Code: exit.Findings}
			}
			return nil
		},
	}
}

// oneFile checks the arguments of a command that takes the configuration of a gateway.
func oneFile(cmd *cobra.Command, args []string) error {
	switch len(args) {
	case 0:
		return exit.UsageHintf("mcpwire gateway import writes one, and doc/gateway.md explains it", "%s: missing the configuration: give its file", strings.TrimPrefix(cmd.CommandPath(), "mcpwire "))
	case 1:
		return nil
	}
	return exit.Usagef("%s: unexpected argument %q: it takes one file", strings.TrimPrefix(cmd.CommandPath(), "mcpwire "), args[1])
}

// completeConfiguration completes the names of files in YAML and JSON.
func completeConfiguration(_ *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
	if len(args) > 0 {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	return []string{"yaml", "yml", "json"}, cobra.ShellCompDirectiveFilterFileExt
}

func newGatewaySchemaCommand(e *kit.Env) *cobra.Command {
	return &cobra.Command{
		Use:   "schema",
		Short: "print the JSON Schema of the configuration",
		Long: `Print the JSON Schema of the configuration (draft 2020-12), for editors. Those
that know the YAML Language Server use it if the first line of a configuration
is, for example:

  # yaml-language-server: $schema=./gateway.schema.json`,
		Example: "  mcpwire gateway schema > gateway.schema.json",
		Args:    kit.FlagsOnly,
		RunE: func(*cobra.Command, []string) error {
			_, err := e.Stdout.Write(gatewayconfig.Schema)
			return err
		},
	}
}

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

func newGatewayPinsCommand(e *kit.Env) *cobra.Command {
	c := &cobra.Command{
		Use:   "pins FILE | pins accept FILE UPSTREAM [NAME]",
		Short: "show and accept changed definitions of tools",
		Long: `Show which tools, prompts, resources and templates have another definition than
the accepted one, which servers have other instructions, and what has changed. The
gateway accepts the first definition that it sees of each item of an upstream with
pin: warn or pin: hide in the configuration FILE, for each kind of clients.

Exit status: 0 nothing has changed, 6 something has.`,
		Example:           "  mcpwire gateway pins gateway.yaml\n  mcpwire gateway pins accept gateway.yaml files read_file",
		Args:              oneFile,
		ValidArgsFunction: completeConfiguration,
		RunE: func(_ *cobra.Command, args []string) error {
			_, file, err := gatewayd.PinFile(args[0])
			if err != nil {
				return err
			}
			changes, err := policy.ChangedPins(file)
			if err != nil {
				return err
			}
			if err := printPins(e.Stdout, changes); err != nil {
				return err
			}
			if len(changes) > 0 {
				return &exit.Status{Code: exit.Findings}
			}
			return nil
		},
	}
	c.AddCommand(&cobra.Command{
		Use:   "accept FILE UPSTREAM [NAME]",
		Short: "accept changed definitions of an upstream",
		Long: `Accept the changed definitions of an upstream, or only of the items with a name or
URI, and print what has changed. NAME is the server's own name; that of a server's
instructions is "instructions". A running gateway notices it.`,
		Example: "  mcpwire gateway pins accept gateway.yaml files\n  mcpwire gateway pins accept gateway.yaml files read_file",
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) < 2 || len(args) > 3 {
				return exit.Usagef("gateway pins accept: want the configuration, the name of an upstream, and perhaps that of a tool")
			}
			return nil
		},
		ValidArgsFunction: completeConfiguration,
		RunE: func(_ *cobra.Command, args []string) error {
			conf, file, err := gatewayd.PinFile(args[0])
			if err != nil {
				return err
			}
			if conf.Upstream(args[1]) == nil {
				var names []string
				for _, u := range conf.Upstreams {
					names = append(names, u.Name)
				}
				return exit.Usagef("gateway pins accept: no upstream %q in %s%s", args[1], safe.Line(args[0]), kit.DidYouMean(args[1], names))
			}
			changes, err := policy.AcceptPins(file, args[1], append(args[2:], "")[0])
			if err != nil {
				return err
			}
			if len(changes) == 0 {
				_, err := fmt.Fprintln(e.Stderr, "mcpwire: nothing to accept")
				return err
			}
			return printPins(e.Stdout, changes)
		},
	})
	return c
}

// printPins prints changed definitions, with a line for each difference.
func printPins(w io.Writer, changes []*policy.PinChange) error {
	for _, c := range changes {
		if _, err := fmt.Fprintf(w, "%s %s %s, changed %s (for clients: %s)\n", safe.Line(c.Upstream), c.Kind, safe.Line(c.Name), c.Since.Local().Format("2006-01-02 15:04:05"), c.Catalog); err != nil {
			return err
		}
		for _, line := range c.Lines() {
			if _, err := fmt.Fprintf(w, "  %s\n", safe.Line(line)); err != nil {
				return err
			}
		}
	}
	return nil
}
