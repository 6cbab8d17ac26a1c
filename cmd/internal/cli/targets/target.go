// Package targets names servers on a command line, by URL, by the name in a host's configuration,
// or by their command, and connects to them.
package targets

import (
	"cmp"
	"net/http"
	"net/url"
	"path/filepath"
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

// ServerName returns the name for the server that a command starts. For programs that only start
// another one (npx, uvx, docker run, python -m, env and similar), it is the name of the package,
// image, module or script. It contains no arguments that may be secrets.
func ServerName(command []string) string {
	for {
		rest, name := launched(command)
		if name != "" {
			return safe.Clip(name, 100)
		}
		if len(rest) == 0 {
			break
		}
		command = rest
	}
	return safe.Clip(programName(command[0]), 100)
}

// programName returns the name of a program without its folder and suffix.
func programName(path string) string {
	name := path[strings.LastIndexAny(path, `/\`)+1:]
	for _, suffix := range []string{".exe", ".cmd", ".bat"} {
		if n := len(name) - len(suffix); n > 0 && strings.EqualFold(name[n:], suffix) {
			return name[:n]
		}
	}
	return name
}

// launched returns the name of what a launcher starts, or the command that it starts, or neither if
// the command is no launcher.
func launched(command []string) (rest []string, name string) {
	program, args := strings.ToLower(programName(command[0])), command[1:]
	if program == "uv" {
		args = operands(args, "--directory", "--project", "--config-file", "--cache-dir")
	}
	switch {
	case slices.Contains([]string{"npx", "bunx", "pnpx", "uvx"}, program):
		return nil, packageOf(args)
	case hasSubcommand(program, args):
		return nil, packageOf(args[1:])
	case program == "uv" && len(args) > 2 && args[0] == "tool" && args[1] == "run":
		return nil, packageOf(args[2:])
	case program == "uv" && len(args) > 1 && args[0] == "run":
		return operands(args[1:], "--directory", "--project", "--with", "--python", "-p", "--extra", "--group", "--env-file", "--index"), ""
	case (program == "docker" || program == "podman") && len(args) > 1 && args[0] == "run":
		return nil, imageOf(args[1:])
	case program == "env":
		rest = operands(args, "-u", "--unset", "-C", "--chdir")
		for len(rest) > 0 && strings.Contains(rest[0], "=") {
			rest = rest[1:]
		}
		return rest, ""
	case program == "cmd" && len(args) > 1 && strings.EqualFold(args[0], "/c"):
		return args[1:], ""
	case len(args) > 0 && slices.Contains([]string{"-c", "-e", "-p", "--eval", "--print"}, args[0]):
		// The next argument is code.
	case strings.HasPrefix(program, "python") || program == "py" || program == "pypy3":
		if i := slices.Index(args, "-m"); i >= 0 && i+1 < len(args) && allOptions(args[:i]) {
			return nil, args[i+1]
		}
		return nil, scriptOf(operands(args, "-W", "-X"))
	case slices.Contains([]string{"node", "tsx", "ts-node", "bun", "deno", "ruby", "php"}, program):
		if program != "node" && len(args) > 0 && args[0] == "run" {
			args = args[1:]
		}
		return nil, scriptOf(operands(args, "-r", "--require", "--import", "--loader", "--env-file"))
	case program == "java":
		if i := slices.Index(args, "-jar"); i >= 0 && i+1 < len(args) {
			return nil, scriptOf(args[i+1:])
		}
	}
	return nil, ""
}

// hasSubcommand reports whether the arguments make a package manager run a package.
func hasSubcommand(program string, args []string) bool {
	if len(args) < 2 {
		return false
	}
	switch program {
	case "npm", "pnpm":
		return args[0] == "exec" || args[0] == "dlx" || args[0] == "x"
	case "yarn":
		return args[0] == "dlx"
	case "bun":
		return args[0] == "x"
	case "pipx":
		return args[0] == "run"
	}
	return false
}

func allOptions(args []string) bool {
	return !slices.ContainsFunc(args, func(a string) bool { return !strings.HasPrefix(a, "-") })
}

// operands returns args from the first that is neither an option nor the value of one that takes a
// value.
func operands(args []string, withValue ...string) []string {
	for i := 0; i < len(args); i++ {
		switch {
		case args[i] == "--":
			return args[i+1:]
		case slices.Contains(withValue, args[i]):
			i++
		case !strings.HasPrefix(args[i], "-"):
			return args[i:]
		}
	}
	return nil
}

// packageOf returns the name of the first package in the arguments of npx, uvx and similar
// programs, without its scope and version. The name of mcp-remote is the host that it connects to.
func packageOf(args []string) string {
	args = operands(args, "-p", "--package", "--from", "--with", "--python", "-c", "--call", "--registry", "--index", "--index-url", "--directory", "--cache")
	if len(args) == 0 {
		return ""
	}
	spec := args[0]
	if u, err := url.Parse(spec); err == nil && u.Scheme != "" && u.Host != "" {
		return strings.TrimSuffix(filepath.Base(u.Path), ".git")
	}
	name := spec[strings.LastIndexByte(spec, '/')+1:]
	if i := strings.IndexAny(name[min(1, len(name)):], "@=<>~![;"); i >= 0 {
		name = name[:i+1]
	}
	if name == "mcp-remote" && len(args) > 1 {
		if u, err := url.Parse(args[1]); err == nil && u.Host != "" {
			return u.Hostname()
		}
	}
	return name
}

// imageOf returns the name of the image in the arguments of docker run, without registry and tag.
func imageOf(args []string) string {
	for i := 0; i < len(args); i++ {
		a := args[i]
		switch {
		case !strings.HasPrefix(a, "-"):
			name, _, _ := strings.Cut(a[strings.LastIndexByte(a, '/')+1:], ":")
			name, _, _ = strings.Cut(name, "@")
			return name
		case strings.Contains(a, "="), slices.Contains([]string{"--rm", "--init", "--privileged", "--interactive", "--tty", "--detach", "--read-only", "--publish-all", "--no-healthcheck", "--oom-kill-disable"}, a):
		case !strings.HasPrefix(a, "--") && strings.Trim(a, "-itdP") == "":
		default:
			i++ // the value of an option
		}
	}
	return ""
}

// scriptOf returns the name of a script, or that of its project if many scripts have this name.
func scriptOf(args []string) string {
	if len(args) == 0 {
		return ""
	}
	parts := strings.FieldsFunc(args[0], func(r rune) bool { return r == '/' || r == '\\' })
	if len(parts) == 0 {
		return ""
	}
	last := parts[len(parts)-1]
	if i := strings.LastIndexByte(last, '.'); i > 0 {
		last = last[:i]
	}
	common := []string{"index", "main", "server", "app", "cli", "run", "start", "mcp", "stdio", "__main__", "dist", "build", "src", "lib", "out", "bin", ".", ".."}
	if !slices.Contains(common, last) {
		return last
	}
	for _, p := range slices.Backward(parts[:len(parts)-1]) {
		if !slices.Contains(common, p) && !strings.HasSuffix(p, ":") {
			return p
		}
	}
	return last
}
