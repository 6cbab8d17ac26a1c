// Package targets names servers on a command line, by URL, by the name in a host's configuration,
// or by their command, and connects to them.
package targets

import (
	"cmp"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"mcpwire/cmd/internal/cli/kit"
	"mcpwire/cmd/internal/exit"
	"mcpwire/cmd/internal/text/safe"
)

// Help is the part of a command's help that describes TARGET.
const Help = `TARGET is a URL, the name of a server in any host's configuration (mcpwire
servers lists them), HOST:NAME, or FILE:NAME. Or omit TARGET, and put
the command line of a stdio server after --, which is used unchanged. mcpwire
asks once before it uses a server from a project's own file, such as
./.mcp.json. Without a terminal, this requires HOST:NAME or --trust-project.`

// A Spec is the server that a command line names: a command to start, or a URL.
type Spec struct {
	// Name is for messages. It contains no secrets.
	Name string
	// server is the name in captures. It is name if empty.
	server string
	// Command is that of a stdio server, the program first. It is nil for HTTP.
	Command []string
	// Dir is the working directory. "" is the current one.
	Dir string
	// Env is added to this process's environment, as NAME=value.
	Env []string
	// URL is that of an HTTP server.
	URL    string
	Header http.Header
	// Transport is TransportHTTP or TransportSSE if the configuration says so.
	Transport string
	// timeout is the configured limit for an answer. Zero means none.
	timeout time.Duration
}

// The values of --transport and Spec.transport.
const (
	TransportAuto  = "auto"
	transportStdio = "stdio"
	TransportHTTP  = "http"
	TransportSSE   = "sse"
)

// IsStdio reports whether the server is a command.
func (t *Spec) IsStdio() bool { return t.Command != nil }

// Split separates the server on a command line from the command's own arguments, rest, which
// the caller must check. It reads the flags --config, --server and --env of cmd if they exist. All
// errors are usage errors.
func Split(cmd *cobra.Command, e *kit.Env, args []string) (t Spec, rest []string, err error) {
	dash := cmd.ArgsLenAtDash()
	file, server := kit.FlagText(cmd, "config"), kit.FlagText(cmd, "server")
	switch {
	case (file == "") != (server == ""):
		return t, nil, exit.Usagef("%s: --config and --server need each other: the file, and the name of a server in it", cmd.Name())
	case file != "" && dash >= 0:
		return t, nil, exit.Usagef("%s: --config and -- exclude each other", cmd.Name())
	case file != "":
		t, err = Named(cmd, e, file+":"+server)
		return t, args, err
	case dash >= 0:
		command := args[dash:]
		if len(command) == 0 || command[0] == "" {
			return t, nil, exit.Usagef("%s: no command after -- (such as: mcpwire %[1]s -- node server.js)", cmd.Name())
		}
		return Spec{Name: CommandName(command), server: ServerName(command), Command: command}, args[:dash], nil
	case len(args) == 0 || args[0] == "":
		return t, nil, exit.Usagef("%s: missing the server: give a URL, a name from a host's configuration, or -- and a command (mcpwire %[1]s --help)", cmd.Name())
	case IsURL(args[0]):
		t, err = OfURL(args[0])
	default:
		t, err = Named(cmd, e, args[0])
	}
	return t, args[1:], err
}

// CommandName shows a command without possible secrets: the program, and its first argument unless
// that is an option. An argument after an option may be its value, unless the program is known to
// start a server (see ServerName).
func CommandName(command []string) string {
	name := safe.Line(command[0])
	if server := ServerName(command); len(command) > 1 && !strings.HasPrefix(command[1], "-") {
		return name + " " + safe.Clip(command[1], 60)
	} else if server != programName(command[0]) {
		return server
	}
	return name
}

// CaptureName returns the name of the server in captures.
func (t *Spec) CaptureName() string { return cmp.Or(t.server, t.Name) }

// AddTap has the command of a stdio server run by mcpwire tap. command is the name of the running
// command, for errors.
func (t *Spec) AddTap(command string) error {
	if !t.IsStdio() {
		return exit.UsageHintf("mcpwire tap --listen 127.0.0.1:9000 URL records what passes through that address", "%s: --tap records servers that are commands, and %s is a URL", command, t.Name)
	}
	tap, err := kit.OwnPath()
	if err != nil {
		return err
	}
	t.server = t.CaptureName()
	t.Command = slices.Concat([]string{tap, "tap", "--name", t.server, "--"}, t.Command)
	return nil
}

// IsURL reports whether an argument is the URL of a server.
func IsURL(s string) bool {
	scheme, _, ok := strings.Cut(s, "://")
	return ok && (strings.EqualFold(scheme, "http") || strings.EqualFold(scheme, "https"))
}

// OfURL returns the target for the URL of a server.
func OfURL(raw string) (Spec, error) {
	u, err := url.Parse(raw)
	switch {
	case err != nil, u.Hostname() == "":
		return Spec{}, exit.Usagef("%s is not the URL of a server (such as http://127.0.0.1:8080/mcp)", safe.Clip(raw, 100))
	case u.User != nil:
		return Spec{}, exit.Usagef("the URL has a user name: give credentials with --header 'Authorization: …' instead")
	}
	return Spec{Name: SafeURL(raw), URL: raw}, nil
}

// SafeURL returns a URL for messages, without the parts that may contain secrets.
func SafeURL(raw string) string {
	u, err := url.Parse(raw)
	if err != nil {
		return "a malformed URL"
	}
	u.User, u.Fragment, u.RawFragment = nil, "", ""
	if u.RawQuery != "" {
		u.RawQuery = "…"
	}
	return safe.Line(u.String())
}
