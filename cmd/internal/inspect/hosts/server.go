package hosts

import (
	"fmt"
	"maps"
	"net/url"
	"path"
	"slices"
	"strconv"
	"strings"

	"mcpwire/internal/json/jsonpointer"
	"mcpwire/internal/text/clip"
	"mcpwire/internal/text/lazyregexp"
)

// A Scope says where a server is configured and for whom.
type Scope string

const (
	// ScopeUser is for all projects of the user.
	ScopeUser Scope = "user"
	// ScopeProject is for everyone who works on a project, in a file of the project.
	ScopeProject Scope = "project"
	// ScopeLocal is for one project, in a file of the user.
	ScopeLocal Scope = "local"
	// ScopeFile is for a file that the user named.
	ScopeFile Scope = "file"
)

// A Transport says how a server is reached. "" means unknown: an extension of the host decides.
// Spec: https://modelcontextprotocol.io/specification/2025-11-25/basic/transports
type Transport string

const (
	TransportStdio Transport = "stdio"
	TransportHTTP  Transport = "http" // Streamable HTTP
	TransportSSE   Transport = "sse"  // HTTP+SSE of 2024-11-05
)

// A Server is a server that a host is configured with. Its maps and slices belong to the caller.
// Only what [Server.Redacted] returns is for output.
type Server struct {
	// Host is "" for a file of an unknown host.
	Host  string `json:"host"`
	Scope Scope  `json:"scope"`
	Name  string `json:"name"`
	// File is the path of the file. Pointer is the JSON pointer
	// (https://www.rfc-editor.org/rfc/rfc6901) to the entry, also for TOML.
	File    string `json:"file"`
	Pointer string `json:"pointer"`
	// Project is the folder of the project for [ScopeProject] and [ScopeLocal].
	Project string `json:"project,omitempty"`

	Transport Transport `json:"transport,omitempty"`
	// Command and Args run the server, without the tap if Wrapped.
	Command string   `json:"command,omitempty"`
	Args    []string `json:"args,omitempty"`
	// Env holds variables that are added to those of the host. EnvFile names a file with more.
	Env     map[string]string `json:"env,omitempty"`
	EnvFile string            `json:"envFile,omitempty"`
	Cwd     string            `json:"cwd,omitempty"`
	// URL is the URL of the server, without the tap if Wrapped and the original URL is recorded.
	URL     string            `json:"url,omitempty"`
	Headers map[string]string `json:"headers,omitempty"`
	// TimeoutMS is the host's limit for a response, in milliseconds. Zero means unspecified.
	TimeoutMS int64 `json:"timeoutMs,omitempty"`
	// Disabled reports that the host does not start the server.
	Disabled bool `json:"disabled"`
	// Wrapped reports that the entry goes through a tap. Wrapper is the program of that tap, or ""
	// if the tap listens on an address.
	Wrapped bool   `json:"wrapped"`
	Wrapper string `json:"wrapper,omitempty"`

	// noVariables reports that the host expands no references. The headers in fromEnv contain
	// references that this package added, for members that name variables.
	noVariables bool
	fromEnv     []string
}

// Placeholder replaces values that [Server.Redacted] hides.
const Placeholder = "~hidden~"

// Redacted returns a copy for display. It replaces the values of Env and Headers by [Placeholder],
// except for mere references to variables, and also apparent credentials in URL. It does not change
// Args.
func (s Server) Redacted() Server {
	s.Args = slices.Clone(s.Args)
	s.Env = hideValues(s.Env)
	s.Headers = hideValues(s.Headers)
	s.URL = hideURL(s.URL)
	return s
}

// reference matches a value that refers to a secret. A default could itself be a secret, so it does
// not match.
var reference = lazyregexp.New(`^(Bearer |Basic )?(\$\{[A-Za-z0-9_:.-]*[A-Za-z0-9_.]\}|\$[A-Za-z_][A-Za-z0-9_]*|\{env:[A-Za-z0-9_]+\})$`)

func hideValue(v string) string {
	if v == "" || reference().MatchString(v) && !strings.Contains(v, ":-") {
		return v
	}
	return Placeholder
}

func hideValues(m map[string]string) map[string]string {
	m = maps.Clone(m)
	for k, v := range m {
		m[k] = hideValue(v)
	}
	return m
}

// token matches a part of a URL path that is more likely a key than a word.
var token = lazyregexp.New(`^[A-Za-z0-9_.~=-]*[0-9][A-Za-z0-9_.~=-]*$`)

// minToken is the minimum length of a path part that counts as a key.
const minToken = 20

// hideURL hides users, passwords, parameter values and apparent keys in the path.
func hideURL(text string) string {
	if text == "" {
		return ""
	}
	u, err := url.Parse(text)
	if err != nil || u.Opaque != "" {
		// It may contain a password.
		return Placeholder
	}
	var b strings.Builder
	scheme, path := splitURL(text)
	b.WriteString(scheme)
	if u.User != nil {
		b.WriteString(Placeholder + "@")
	}
	b.WriteString(u.Host)
	if i := strings.IndexAny(path, "?#"); i >= 0 {
		path = path[:i]
	}
	parts := strings.Split(path, "/")
	for i, p := range parts {
		if len(p) >= minToken && token().MatchString(p) {
			parts[i] = Placeholder
		}
	}
	b.WriteString(strings.Join(parts, "/"))
	if u.RawQuery != "" {
		pairs := strings.Split(u.RawQuery, "&")
		for i, pair := range pairs {
			if name, value, ok := strings.Cut(pair, "="); ok {
				pairs[i] = name + "=" + hideValue(value)
			} else {
				pairs[i] = Placeholder
			}
		}
		b.WriteString("?" + strings.Join(pairs, "&"))
	}
	if u.Fragment != "" {
		b.WriteString("#" + Placeholder)
	}
	return b.String()
}

// splitURL returns the scheme of a URL with its slashes, and what follows user and host. Unlike
// url.Parse it changes no bytes, because they may contain references to variables.
func splitURL(text string) (scheme, rest string) {
	if i := strings.Index(text, "//"); i >= 0 && !strings.ContainsAny(text[:i], "/?#") {
		scheme, text = text[:i+2], text[i+2:]
	} else {
		return "", text
	}
	if i := strings.IndexAny(text, "/?#"); i >= 0 {
		return scheme, text[i:]
	}
	return scheme, ""
}

func (s Server) sameAs(t Server) bool {
	return s.Transport == t.Transport && s.Command == t.Command && slices.Equal(s.Args, t.Args) && maps.Equal(s.Env, t.Env) &&
		s.EnvFile == t.EnvFile && s.Cwd == t.Cwd && s.URL == t.URL && maps.Equal(s.Headers, t.Headers) && s.noVariables == t.noVariables
}

// IsRemote reports whether the server is reached over HTTP.
func (s Server) IsRemote() bool { return s.Transport == TransportHTTP || s.Transport == TransportSSE }

// An entry is a server in a document.
type entry struct {
	name    string
	pointer string
	// project is set for tables below projects.
	project string
	node    *node
}

// entries returns the servers in the first of the tables that the document has.
func entries(root *node, tables [][]string) []entry {
	for _, names := range tables {
		table := root.lookup(names)
		if table == nil || table.kind != kindObject {
			continue
		}
		// It is a server with the name of a table.
		if len(names) > 1 && looksLikeServer(table) {
			continue
		}
		return members(table, pointerTo(names...), "")
	}
	return nil
}

// projectEntries returns the servers that Claude Code stores for each project in the user's file.
func projectEntries(root *node) []entry {
	m := root.get("projects")
	if m == nil || m.value.kind != kindObject {
		return nil
	}
	var list []entry
	for _, p := range m.value.members {
		if t := p.value.get("mcpServers"); t != nil && t.value.kind == kindObject {
			list = append(list, members(t.value, pointerTo("projects", p.name, "mcpServers"), p.name)...)
		}
	}
	return list
}

// members returns the members of a table of servers. Of several with the same name it returns the
// last, as hosts do.
func members(table *node, pointer, project string) []entry {
	last := make(map[string]int, len(table.members))
	for i, m := range table.members {
		last[m.name] = i
	}
	list := make([]entry, 0, len(last))
	for i, m := range table.members {
		if last[m.name] == i {
			list = append(list, entry{name: m.name, pointer: pointer + pointerTo(m.name), project: project, node: m.value})
		}
	}
	return list
}

// looksLikeServer reports whether a value has a command or a URL.
func looksLikeServer(n *node) bool {
	return n.get("command") != nil || urlOf(n) != nil
}

// urlNames are the names of the URL member: Windsurf uses serverUrl, Gemini httpUrl.
var urlNames = []string{"url", "serverUrl", "httpUrl"}

func urlOf(n *node) *member {
	for _, name := range urlNames {
		if m := n.get(name); m != nil {
			return m
		}
	}
	return nil
}

func pointerTo(names ...string) string {
	var b strings.Builder
	for _, name := range names {
		b.WriteString("/" + jsonpointer.Escape(name))
	}
	return b.String()
}

// A reader converts an entry to a Server.
type reader struct {
	data []byte
	host string
	// mixed is the field of the entry's [location].
	mixed bool
	// err is the first error.
	err *ParseError
}

func (r *reader) fail(n *node, format string, args ...any) {
	if r.err == nil {
		r.err = errorAt(r.data, n.start, fmt.Sprintf(format, args...))
	}
}

func (r *reader) server(e entry) (Server, *ParseError) {
	s := Server{Name: e.name, Host: r.host, Pointer: e.pointer, Project: e.project}
	if e.node.kind != kindObject {
		r.fail(e.node, "server %s is not a table", quoteName(e.name))
		return s, r.err
	}
	r.process(&s, e.node)
	r.remote(&s, e.node)
	s.Transport = r.transport(e.node, &s)
	if m := e.node.get("disabled"); m != nil {
		s.Disabled = m.value.text == "true"
	}
	if m := e.node.get("enabled"); m != nil {
		s.Disabled = m.value.text == "false"
	}
	s.TimeoutMS = r.timeout(e.node)
	// Zed's extensions supply the command.
	if s.Transport == "" && r.err == nil && r.host != "zed" {
		r.fail(e.node, "server %s has neither a command nor a URL", quoteName(e.name))
	}
	return s, r.err
}

func (r *reader) process(s *Server, n *node) {
	f := fieldsOf(n)
	switch {
	case f.command == nil:
	case f.argv:
		all := r.list(f.command.value, "command")
		if len(all) > 0 {
			s.Command, s.Args = all[0], all[1:]
		}
	case f.command.value.kind == kindString:
		s.Command = f.command.value.text
		if f.args != nil {
			s.Args = r.list(f.args.value, "args")
		}
	default:
		r.fail(f.command.value, "command is not a string")
	}
	if inner, ok := unwrapped(s.Command, s.Args); ok {
		s.Wrapper, s.Wrapped = s.Command, true
		s.Command, s.Args = inner[0], inner[1:]
	}
	for _, name := range []string{"env", "environment"} {
		if m := f.object.get(name); m != nil {
			s.Env = r.table(m.value, name, s.Env)
		}
	}
	s.EnvFile = r.text(n.get("envFile"))
	s.Cwd = r.text(n.get("cwd"))
}

func (r *reader) remote(s *Server, n *node) {
	s.URL = r.text(urlOf(n))
	for _, name := range []string{"headers", "http_headers"} {
		if m := n.get(name); m != nil {
			s.Headers = r.table(m.value, name, s.Headers)
		}
	}
	bearer := r.text(n.get("bearer_token_env_var"))
	if bearer == "" {
		bearer = r.text(n.get("bearer_token_env")) // fx
	}
	if r.host != "codex" && bearer == "" && n.get("env_http_headers") == nil {
		return
	}
	// Codex does not expand values. It has members that name variables.
	s.noVariables = true
	add := func(header, value string) {
		if s.Headers == nil {
			s.Headers = map[string]string{}
		}
		s.Headers[header] = value
		s.fromEnv = append(s.fromEnv, header)
	}
	if bearer != "" {
		add("Authorization", "Bearer ${env:"+bearer+"}")
	}
	if m := n.get("env_http_headers"); m != nil {
		named := r.table(m.value, "env_http_headers", nil)
		for _, header := range slices.Sorted(maps.Keys(named)) {
			add(header, "${env:"+named[header]+"}")
		}
	}
}

// transport returns the transport that the type or the other members indicate.
func (r *reader) transport(n *node, s *Server) Transport {
	kind := r.text(n.get("type"))
	if kind == "" {
		kind = r.text(n.get("transport"))
	}
	switch strings.ToLower(kind) {
	case "stdio", "local":
		return TransportStdio
	case "sse":
		return TransportSSE
	case "http", "https", "streamable-http", "streamablehttp", "streamable_http", "remote":
		return TransportHTTP
	}
	switch {
	case s.Command != "":
		return TransportStdio
	case s.URL == "":
		return ""
	case r.host == "gemini" && n.get("httpUrl") == nil:
		// For Gemini, url means HTTP+SSE and httpUrl Streamable HTTP.
		return TransportSSE
	case path.Base(strings.TrimRight(s.URL, "/")) == "sse" && n.get("serverUrl") != nil:
		return TransportSSE
	}
	return TransportHTTP
}

// timeout reads the host's limit for a response, in milliseconds. Codex has it in seconds.
func (r *reader) timeout(n *node) int64 {
	for _, u := range []struct {
		name string
		unit float64
	}{{"timeout", 1}, {"tool_timeout_sec", 1000}, {"toolTimeoutMs", 1}, {"requestTimeoutMs", 1}} {
		m := n.get(u.name)
		if m == nil || m.value.kind != kindNumber {
			continue
		}
		x, err := strconv.ParseFloat(strings.ReplaceAll(m.value.text, "_", ""), 64)
		unit := u.unit
		if u.name == "timeout" && (!r.mixed || r.host == "goose") && slices.Contains([]string{"cline", "roo", "kilo", "goose"}, r.host) {
			unit = 1000
		}
		if err == nil && x > 0 && x < 1e9 {
			return int64(x * unit)
		}
	}
	return 0
}

func (r *reader) text(m *member) string {
	if m == nil || m.value.kind == kindOther {
		return ""
	}
	if m.value.kind != kindString {
		r.fail(m.value, "%s is not a string", quoteName(m.name))
		return ""
	}
	return m.value.text
}

func (r *reader) list(n *node, name string) []string {
	if n.kind != kindArray {
		if n.kind != kindOther {
			r.fail(n, "%s is not a list of strings", name)
		}
		return nil
	}
	list := make([]string, 0, len(n.elems))
	for _, e := range n.elems {
		if e.kind != kindString && e.kind != kindNumber {
			r.fail(e, "%s is not a list of strings", name)
			return nil
		}
		list = append(list, e.text)
	}
	return list
}

// table adds the members of a table of strings to m, which may be nil. Numbers and booleans become
// their text.
func (r *reader) table(n *node, name string, m map[string]string) map[string]string {
	if n.kind != kindObject {
		if n.kind != kindOther {
			r.fail(n, "%s is not a table of strings", name)
		}
		return m
	}
	for _, f := range n.members {
		switch f.value.kind {
		case kindString, kindNumber, kindBool:
			if m == nil {
				m = make(map[string]string, len(n.members))
			}
			m[f.name] = f.value.text
		case kindObject, kindArray:
			r.fail(f.value, "%s of %s is not a string", quoteName(f.name), name)
		}
	}
	return m
}

// quoteName quotes and truncates a name for a message.
func quoteName(name string) string {
	const most = 80
	return strconv.QuoteToGraphic(clip.String(name, most))
}
