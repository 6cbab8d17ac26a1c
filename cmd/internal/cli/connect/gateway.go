package connect

import (
	"context"
	"log/slog"
	"os"

	"github.com/spf13/cobra"

	"mcpwire/cmd/internal/cli/kit"
	"mcpwire/cmd/internal/exit"
	"mcpwire/cmd/internal/gatewayd"
	"mcpwire/cmd/internal/proxy/recording"
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
			if len(args) > 0 && !exists(args[0]) {
				if hint := kit.DidYouMean(args[0], []string{"check", "import", "logins", "pins", "schema"}); hint != "" {
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

// exists reports whether a path exists.
func exists(path string) bool {
	_, err := os.Stat(path)
	return err == nil
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
