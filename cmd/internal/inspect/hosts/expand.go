package hosts

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"mcpwire/internal/text/lazyregexp"
)

// An Unexpanded is a reference without a value.
type Unexpanded struct {
	// Field names the field: "command", "args[2]", "env.TOKEN" and so on.
	Field string
	// Reference is the text of the reference, without a default.
	Reference string
	Why       string
}

// An ExpandError lists the references of a server that have no value.
type ExpandError struct {
	Server     string
	Unexpanded []Unexpanded
}

func (e *ExpandError) Error() string {
	var list []string
	for _, p := range e.Unexpanded {
		list = append(list, p.Reference+" in "+p.Field+": "+p.Why)
	}
	return "server " + quoteName(e.Server) + ": " + strings.Join(list, "; ")
}

// maxExpanded limits the length of an expanded value.
const maxExpanded = 1 << 20

// Expand returns the server with the references in its command, arguments, variables, folder, URL
// and headers replaced as its host would. It adds the variables of EnvFile to Env, where those
// already in Env take precedence. It supports ${NAME}, ${NAME:-default}, ${env:NAME},
// ${workspaceFolder}, ${workspaceFolderBasename}, ${userHome}, ${cwd}, ${pathSeparator}, for Gemini
// $NAME and for OpenCode {env:NAME}. Codex has no references. ${input:id} of VS Code, which prompts
// the user, has no value.
//
// The server is valid only if the error is nil. The error is an [*ExpandError] or an error of the
// EnvFile.
func (s Server) Expand(e *Env) (Server, error) {
	x := expander{env: e, server: &s}
	out := s
	out.Command = x.value("command", s.Command)
	out.Args = slices.Clone(s.Args)
	for i, a := range out.Args {
		out.Args[i] = x.value("args["+strconv.Itoa(i)+"]", a)
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

// An expander replaces the references of one server.
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

// path makes a path absolute, relative to the project.
func (x *expander) path(path string) string {
	if path == "" || filepath.IsAbs(path) {
		return path
	}
	if rest, ok := strings.CutPrefix(path, "~/"); ok && x.env.Home != "" {
		return filepath.Join(x.env.Home, rest)
	}
	return filepath.Join(x.workspace(), path)
}

// workspace returns the folder of the project, or else the working directory.
func (x *expander) workspace() string {
	return cmp.Or(x.server.Project, x.env.Dir)
}

var (
	braces     = lazyregexp.New(`\$\{([^{}$]*)\}`)
	openBraces = lazyregexp.New(`\{(env|file):([^{}]*)\}`)
	dollar     = lazyregexp.New(`\$\{([^{}$]*)\}|\$([A-Za-z_][A-Za-z0-9_]*)`)
	identifier = lazyregexp.New(`^[A-Za-z_][A-Za-z0-9_]*$`)
)

func (x *expander) expand(field, text string) string {
	if !strings.ContainsAny(text, "${") {
		return text
	}
	pattern := braces()
	host := x.server.Host
	if host == "kilo" && strings.HasPrefix(filepath.Base(x.server.File), "kilo.json") {
		host = "opencode" // Kilo has its form since it builds on it
	}
	switch host {
	case "gemini":
		pattern = dollar()
	case "opencode":
		return x.replace(field, text, openBraces(), func(m []string) (string, string) {
			if m[1] == "file" {
				return "", "reading files is not supported"
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

// notReference is the reason for a text that is not a reference.
const notReference = "\x00"

// replace replaces each match of pattern by the value that resolve returns, unless resolve returns
// a reason.
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
			value, why = "", "the expanded value is too long"
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

// reference returns the value of the reference ${name}, or why it has none.
func (x *expander) reference(name string) (value, why string) {
	switch name {
	case "workspaceFolder", "workspaceRoot", "cwd":
		return x.workspace(), ""
	case "workspaceFolderBasename":
		return filepath.Base(x.workspace()), ""
	case "userHome":
		if x.env.Home == "" {
			return "", "no home folder"
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
		return "", "only the host knows the folders of a workspace"
	case kind == "config", kind == "command":
		return "", "only the host knows its settings and commands"
	}
	return "", notReference
}

func (x *expander) variable(name, fallback string, hasDefault bool) (value, why string) {
	if !identifier().MatchString(name) {
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

// Limits on files of variables.
const (
	MaxEnvFileBytes = 1 << 20
	MaxVariables    = 10_000
)

// ReadEnvFile reads a file of lines NAME=VALUE, such as the envFile of VS Code and Cursor. It
// ignores empty lines, lines that begin with #, and export before a name. A value in single quotes
// is literal. A value in double quotes may span lines and contain \n, \r, \t, \" and \\. A value
// without quotes ends before a # that follows a space. References are not expanded. The map belongs
// to the caller. It returns a *ParseError or a file system error.
func ReadEnvFile(path string) (map[string]string, error) {
	data, err := readFile(path)
	if err != nil {
		if errors.Is(err, fs.ErrNotExist) {
			return nil, fmt.Errorf("envFile: %w", err)
		}
		return nil, err
	}
	if len(data) > MaxEnvFileBytes {
		return nil, &ParseError{Path: path, Reason: fmt.Sprintf("the file is larger than %d MiB", MaxEnvFileBytes>>20)}
	}
	vars, err := parseEnv(bytes.TrimPrefix(data, bom))
	return vars, withPath(err, path)
}

func parseEnv(data []byte) (map[string]string, error) {
	vars := map[string]string{}
	text := strings.ReplaceAll(string(data), "\r\n", "\n")
	for line := 1; text != ""; {
		this, rest, _ := strings.Cut(text, "\n")
		lines := 1
		if trimmed := strings.TrimSpace(this); trimmed != "" && trimmed[0] != '#' {
			name, value, ok := strings.Cut(this, "=")
			name = strings.TrimSpace(strings.TrimPrefix(strings.TrimSpace(name), "export "))
			if !ok || name == "" || strings.ContainsAny(name, " \t\"'\x00") {
				return nil, &ParseError{Line: line, Column: 1, Reason: "want NAME=VALUE"}
			}
			if value = strings.TrimLeft(value, " \t"); strings.HasPrefix(value, `"`) || strings.HasPrefix(value, "'") {
				from := len(this) - len(value)
				v, end, ok := quotedValue(text[from:])
				if !ok {
					return nil, &ParseError{Line: line, Column: from + 1, Reason: "the quote is not closed"}
				}
				lines += strings.Count(text[:from+end], "\n")
				_, rest, _ = strings.Cut(text[from+end:], "\n")
				value = v
			} else {
				value = unquotedValue(value)
			}
			if vars[name] = value; len(vars) > MaxVariables {
				return nil, &ParseError{Line: line, Column: 1, Reason: fmt.Sprintf("more than %d variables", MaxVariables)}
			}
		}
		text = rest
		line += lines
	}
	return vars, nil
}

func unquotedValue(v string) string {
	if strings.HasPrefix(v, "#") {
		return ""
	}
	for i := 1; i < len(v); i++ {
		if v[i] == '#' && (v[i-1] == ' ' || v[i-1] == '\t') {
			v = v[:i]
		}
	}
	return strings.TrimSpace(v)
}

var unescapeEnv = strings.NewReplacer(`\n`, "\n", `\r`, "\r", `\t`, "\t", `\"`, `"`, `\\`, `\`)

// quotedValue returns the value of the quoted text at the beginning of text, and its end.
func quotedValue(text string) (value string, end int, ok bool) {
	quote := text[0]
	for i := 1; i < len(text); i++ {
		switch {
		case text[i] == '\\' && quote == '"':
			i++
		case text[i] == quote && quote == '"':
			return unescapeEnv.Replace(text[1:i]), i + 1, true
		case text[i] == quote:
			return text[1:i], i + 1, true
		}
	}
	return "", 0, false
}
