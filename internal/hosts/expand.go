package hosts

import (
	"maps"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
)

// An Unexpanded is a reference in an entry that has no value here.
type Unexpanded struct {
	Field     string // "command", "args[2]", "env.TOKEN" …
	Reference string // as it stands there, without a default
	Why       string
}

// An ExpandError lists the references in the entry of a server that have no value.
type ExpandError struct {
	Server     string
	Unexpanded []Unexpanded
}

func (e *ExpandError) Error() string {
	var b strings.Builder
	b.WriteString("server " + quoteName(e.Server) + ": ")
	for i, p := range e.Unexpanded {
		if i > 0 {
			b.WriteString("; ")
		}
		b.WriteString(p.Reference + " in " + p.Field + ": " + p.Why)
	}
	return b.String()
}

// maxExpanded is how long a value may become: references may come often, and their values be long.
const maxExpanded = 1 << 20

// Expand returns the server with the references in its command, arguments, variables, folder, URL and headers replaced as its host
// would, and with what its EnvFile says in Env; what Env itself says goes first. Known are ${NAME}, ${NAME:-default}, ${env:NAME},
// ${workspaceFolder}, ${workspaceFolderBasename}, ${userHome}, ${cwd}, ${pathSeparator}, for Gemini $NAME, for OpenCode
// {env:NAME}. Codex has none. ${input:id} of VS Code, which asks the user, has no value here.
//
// The server is good to be used only if the error is nil. It is an [*ExpandError], or what is wrong with the EnvFile.
func (s Server) Expand(e *Env) (Server, error) {
	x := expander{env: e, server: &s}
	out := s
	out.Command = x.value("command", s.Command)
	out.Args = slices.Clone(s.Args)
	for i, a := range out.Args {
		out.Args[i] = x.value("args["+itoa(i)+"]", a)
	}
	out.Env = x.table("env", s.Env, nil)
	out.Headers = x.table("headers", s.Headers, s.fromEnv)
	out.URL = x.value("url", s.URL)
	out.Cwd = x.path(x.value("cwd", s.Cwd))
	out.EnvFile = x.path(x.value("envFile", s.EnvFile))
	if len(x.unexpanded) > 0 {
		return out, &ExpandError{Server: s.Name, Unexpanded: x.unexpanded}
	}
	if out.EnvFile != "" {
		more, err := ReadEnvFile(out.EnvFile)
		if err != nil {
			return out, err
		}
		maps.Copy(more, out.Env)
		out.Env = more
	}
	return out, nil
}

// An expander replaces references in one server.
type expander struct {
	env        *Env
	server     *Server
	unexpanded []Unexpanded
}

func (x *expander) table(field string, m map[string]string, only []string) map[string]string {
	m = maps.Clone(m)
	for _, name := range slices.Sorted(maps.Keys(m)) {
		if !x.server.noVariables || slices.Contains(only, name) {
			m[name] = x.expand(field+"."+name, m[name])
		}
	}
	return m
}

func (x *expander) value(field, text string) string {
	if x.server.noVariables {
		return text
	}
	return x.expand(field, text)
}

// path makes a path absolute: relative ones begin in the project.
func (x *expander) path(path string) string {
	if path == "" || filepath.IsAbs(path) {
		return path
	}
	if rest, ok := strings.CutPrefix(path, "~/"); ok && x.env.Home != "" {
		return filepath.Join(x.env.Home, rest)
	}
	return filepath.Join(x.workspace(), path)
}

// workspace is the folder of the project: that of the entry, or else the working directory.
func (x *expander) workspace() string {
	if x.server.Project != "" {
		return x.server.Project
	}
	return x.env.Dir
}

var (
	braces     = regexp.MustCompile(`\$\{([^{}$]*)\}`)
	openBraces = regexp.MustCompile(`\{(env|file):([^{}]*)\}`)
	dollar     = regexp.MustCompile(`\$\{([^{}$]*)\}|\$([A-Za-z_][A-Za-z0-9_]*)`)
	identifier = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_]*$`)
)

func (x *expander) expand(field, text string) string {
	if !strings.ContainsAny(text, "${") {
		return text
	}
	pattern := braces
	switch x.server.Host {
	case "gemini":
		pattern = dollar
	case "opencode":
		return x.replace(field, text, openBraces, func(m []string) (string, string) {
			if m[1] == "file" {
				return "", "files are not read here"
			}
			return x.variable(m[2], "", false)
		})
	}
	return x.replace(field, text, pattern, func(m []string) (string, string) {
		if len(m) > 2 && m[2] != "" {
			return x.variable(m[2], "", false)
		}
		return x.reference(m[1])
	})
}

// notReference stands for a reason: the text is no reference.
const notReference = "\x00"

// replace replaces what the pattern finds by what resolve says of it, unless there is a reason not to.
func (x *expander) replace(field, text string, pattern *regexp.Regexp, resolve func(m []string) (value, why string)) string {
	var b strings.Builder
	pos := 0
	for _, loc := range pattern.FindAllStringSubmatchIndex(text, -1) {
		m := make([]string, len(loc)/2)
		for i := range m {
			if loc[2*i] >= 0 {
				m[i] = text[loc[2*i]:loc[2*i+1]]
			}
		}
		b.WriteString(text[pos:loc[0]])
		pos = loc[1]
		value, why := resolve(m)
		if b.Len()+len(value) > maxExpanded {
			value, why = "", "the value becomes too long"
		}
		switch why {
		case "":
			b.WriteString(value)
		case notReference:
			b.WriteString(m[0])
		default:
			name, _, _ := strings.Cut(m[0], ":-")
			if name != m[0] {
				name += "}"
			}
			b.WriteString(m[0])
			x.unexpanded = append(x.unexpanded, Unexpanded{Field: field, Reference: name, Why: why})
		}
	}
	b.WriteString(text[pos:])
	return b.String()
}

// reference returns the value of what stands in ${}, or why it has none.
func (x *expander) reference(name string) (value, why string) {
	switch name {
	case "workspaceFolder", "workspaceRoot", "cwd":
		return x.workspace(), ""
	case "workspaceFolderBasename":
		return filepath.Base(x.workspace()), ""
	case "userHome":
		if x.env.Home == "" {
			return "", "there is no home folder"
		}
		return x.env.Home, ""
	case "pathSeparator", "/":
		if x.env.goos() == "windows" {
			return `\`, ""
		}
		return "/", ""
	}
	name, fallback, hasDefault := strings.Cut(name, ":-")
	kind, rest, ok := strings.Cut(name, ":")
	switch {
	case !ok:
		return x.variable(name, fallback, hasDefault)
	case kind == "env":
		return x.variable(rest, fallback, hasDefault)
	case kind == "input":
		return "", "VS Code asks the user for this; set it in the entry, or pass --env"
	case kind == "workspaceFolder":
		return "", "folders of a workspace are known to the host alone"
	case kind == "config", kind == "command":
		return "", "settings and commands of the host are known to the host alone"
	}
	return "", notReference
}

func (x *expander) variable(name, fallback string, hasDefault bool) (value, why string) {
	if !identifier.MatchString(name) {
		return "", notReference
	}
	if x.env.Lookup != nil {
		if v, ok := x.env.Lookup(name); ok && (v != "" || !hasDefault) {
			return v, ""
		}
	}
	if hasDefault {
		return fallback, ""
	}
	return "", "the variable is not set"
}
