package cli

import (
	"cmp"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"mcpwire/cmd/internal/exit"
	"mcpwire/cmd/internal/text/safe"
)

// targetHelp is the part of a command's help that describes TARGET.
const targetHelp = `TARGET is a URL, the name of a server in any host's configuration (mcpwire
servers lists them), HOST:NAME, or FILE:NAME. Or omit TARGET, and put
the command line of a stdio server after --, which is used unchanged. mcpwire
asks once before it uses a server from a project's own file, such as
./.mcp.json. Without a terminal, this requires HOST:NAME or --trust-project.`

// A targetSpec is the server that a command line names: a command to start, or a URL.
type targetSpec struct {
	// name is for messages. It contains no secrets.
	name string
	// server is the name in captures. It is name if empty.
	server string
	// command is that of a stdio server, the program first. It is nil for HTTP.
	command []string
	// dir is the working directory. "" is the current one.
	dir string
	// env is added to this process's environment, as NAME=value.
	env []string
	// url is that of an HTTP server.
	url    string
	header http.Header
	// transport is transportHTTP or transportSSE if the configuration says so.
	transport string
	// timeout is the configured limit for an answer. Zero means none.
	timeout time.Duration
}

// The values of --transport and targetSpec.transport.
const (
	transportAuto  = "auto"
	transportStdio = "stdio"
	transportHTTP  = "http"
	transportSSE   = "sse"
)

func (t *targetSpec) isStdio() bool { return t.command != nil }

// splitTarget separates the server on a command line from the command's own arguments, rest, which
// the caller must check. It reads the flags --config, --server and --env of cmd if they exist. All
// errors are usage errors.
func splitTarget(cmd *cobra.Command, e *env, args []string) (t targetSpec, rest []string, err error) {
	dash := cmd.ArgsLenAtDash()
	file, server := flagText(cmd, "config"), flagText(cmd, "server")
	switch {
	case (file == "") != (server == ""):
		return t, nil, exit.Usagef("%s: --config and --server need each other: the file, and the name of a server in it", cmd.Name())
	case file != "" && dash >= 0:
		return t, nil, exit.Usagef("%s: --config and -- exclude each other", cmd.Name())
	case file != "":
		t, err = namedTarget(cmd, e, file+":"+server)
		return t, args, err
	case dash >= 0:
		command := args[dash:]
		if len(command) == 0 || command[0] == "" {
			return t, nil, exit.Usagef("%s: no command after -- (such as: mcpwire %[1]s -- node server.js)", cmd.Name())
		}
		return targetSpec{name: commandName(command), server: serverName(command), command: command}, args[:dash], nil
	case len(args) == 0 || args[0] == "":
		return t, nil, exit.Usagef("%s: missing the server: give a URL, a name from a host's configuration, or -- and a command (mcpwire %[1]s --help)", cmd.Name())
	case isURL(args[0]):
		t, err = urlTarget(args[0])
	default:
		t, err = namedTarget(cmd, e, args[0])
	}
	return t, args[1:], err
}

// commandName shows a command without possible secrets: the program, and its first argument unless
// that is an option. An argument after an option may be its value, unless the program is known to
// start a server (see serverName).
func commandName(command []string) string {
	name := safe.Line(command[0])
	if server := serverName(command); len(command) > 1 && !strings.HasPrefix(command[1], "-") {
		return name + " " + safe.Clip(command[1], 60)
	} else if server != programName(command[0]) {
		return server
	}
	return name
}

// captureName returns the name of the server in captures.
func (t *targetSpec) captureName() string { return cmp.Or(t.server, t.name) }

// addTap has the command of a stdio server run by mcpwire tap. command is the name of the running
// command, for errors.
func (t *targetSpec) addTap(command string) error {
	if !t.isStdio() {
		return exit.UsageHintf("mcpwire tap --listen 127.0.0.1:9000 URL records what passes through that address", "%s: --tap records servers that are commands, and %s is a URL", command, t.name)
	}
	tap, err := ownPath()
	if err != nil {
		return err
	}
	t.server = t.captureName()
	t.command = slices.Concat([]string{tap, "tap", "--name", t.server, "--"}, t.command)
	return nil
}

func isURL(s string) bool {
	scheme, _, ok := strings.Cut(s, "://")
	return ok && (strings.EqualFold(scheme, "http") || strings.EqualFold(scheme, "https"))
}

func urlTarget(raw string) (targetSpec, error) {
	u, err := url.Parse(raw)
	switch {
	case err != nil, u.Hostname() == "":
		return targetSpec{}, exit.Usagef("%s is not the URL of a server (such as http://127.0.0.1:8080/mcp)", safe.Clip(raw, 100))
	case u.User != nil:
		return targetSpec{}, exit.Usagef("the URL has a user name: give credentials with --header 'Authorization: …' instead")
	}
	return targetSpec{name: safeURL(raw), url: raw}, nil
}

// safeURL returns a URL for messages, without the parts that may contain secrets.
func safeURL(raw string) string {
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

// flagText returns the value of a flag, or "" if the command has no such flag.
func flagText(cmd *cobra.Command, name string) string {
	if f := cmd.Flags().Lookup(name); f != nil {
		return f.Value.String()
	}
	return ""
}
