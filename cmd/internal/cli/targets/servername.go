package targets

import (
	"net/url"
	"path/filepath"
	"slices"
	"strings"

	"mcpwire/cmd/internal/text/safe"
)

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
