package cli

import (
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/spf13/cobra"
)

// targetHelp is what the help of each command that takes a server says of it.
const targetHelp = `TARGET is a URL, the name of a server in any host's configuration (mcpwire
servers lists them), HOST:NAME, or FILE:NAME. Everything behind -- is the
command line of a stdio server instead, and is not touched; TARGET is left out
then. mcpwire asks once before it uses a server of the project's own file, such
as ./.mcp.json; without a terminal that needs HOST:NAME or --trust-project.`

// A targetSpec is the server that a command line means: one that is started, or one that is reached over HTTP.
type targetSpec struct {
	name      string   // for messages; nothing in it is secret
	command   []string // of a stdio server, the program first; nil for the others
	dir       string   // that it runs in; "" is this one
	env       []string // that it gets besides this process's, as NAME=value
	url       string   // of a server that is reached over HTTP
	header    http.Header
	transport string        // transportHTTP or transportSSE if the configuration says so
	timeout   time.Duration // for an answer, of the configuration; 0 if it does not say
}

// The values of --transport, and of targetSpec.transport.
const (
	transportAuto  = "auto"
	transportStdio = "stdio"
	transportHTTP  = "http"
	transportSSE   = "sse"
)

func (t *targetSpec) isStdio() bool { return t.command != nil }

// splitTarget tells the server on a command line from the command's own arguments. It reads the flags --config, --server and --env of cmd, if it has
// them. All errors are wrong command lines; what is in rest, the caller must use or complain of.
func splitTarget(cmd *cobra.Command, e *env, args []string) (t targetSpec, rest []string, err error) {
	dash := cmd.ArgsLenAtDash()
	file, server := flagText(cmd, "config"), flagText(cmd, "server")
	switch {
	case (file == "") != (server == ""):
		return t, nil, usagef("%s: --config and --server go together: the file, and the name of a server in it", cmd.Name())
	case file != "" && dash >= 0:
		return t, nil, usagef("%s: --config and -- both name a server: give one of them", cmd.Name())
	case file != "":
		t, err = namedTarget(cmd, e, file+":"+server)
		return t, args, err
	case dash >= 0:
		command := args[dash:]
		if len(command) == 0 || command[0] == "" {
			return t, nil, usagef("%s: no command behind -- (such as: mcpwire %[1]s -- node server.js)", cmd.Name())
		}
		return targetSpec{name: commandName(command), command: command}, args[:dash], nil
	case len(args) == 0 || args[0] == "":
		return t, nil, usagef("%s: which server? Give a URL, a name from a host's configuration, or -- and a command (mcpwire %[1]s --help)", cmd.Name())
	case isURL(args[0]):
		t, err = urlTarget(args[0])
	default:
		t, err = namedTarget(cmd, e, args[0])
	}
	return t, args[1:], err
}

// commandName shows a command without what may be secret: the program, and its first argument if that is no option. What stands behind an option may be its value.
func commandName(command []string) string {
	name := safeLine(command[0])
	if len(command) > 1 && !strings.HasPrefix(command[1], "-") {
		return name + " " + clipLine(command[1], 60)
	}
	return name
}

func isURL(s string) bool {
	scheme, _, ok := strings.Cut(s, "://")
	return ok && (strings.EqualFold(scheme, "http") || strings.EqualFold(scheme, "https"))
}

func urlTarget(raw string) (targetSpec, error) {
	u, err := url.Parse(raw)
	switch {
	case err != nil, u.Hostname() == "":
		return targetSpec{}, usagef("%s is no URL of a server (such as http://127.0.0.1:8080/mcp)", clipLine(raw, 100))
	case u.User != nil:
		return targetSpec{}, usagef("the URL has a user name in it: give credentials by --header 'Authorization: …' instead")
	}
	return targetSpec{name: safeURL(raw), url: raw}, nil
}

// safeURL is a URL as messages show it: without the parts that hold secrets.
func safeURL(raw string) string {
	u, err := url.Parse(raw)
	if err != nil {
		return "a URL that cannot be read"
	}
	u.User, u.Fragment, u.RawFragment = nil, "", ""
	if u.RawQuery != "" {
		u.RawQuery = "…"
	}
	return safeLine(u.String())
}

// flagText returns the value of a flag, "" if the command has none of that name.
func flagText(cmd *cobra.Command, name string) string {
	if f := cmd.Flags().Lookup(name); f != nil {
		return f.Value.String()
	}
	return ""
}
