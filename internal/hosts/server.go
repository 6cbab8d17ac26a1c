package hosts

import (
	"maps"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"time"
)

// A Scope tells for whom a server is configured.
type Scope string

const (
	ScopeUser    Scope = "user"    // in all of the user's projects
	ScopeProject Scope = "project" // for everybody who works on a project, in a file of the project
	ScopeLocal   Scope = "local"   // for one project, in a file of the user
	ScopeFile    Scope = "file"    // in a file that the user named
)

// A Transport tells how a server is reached, see
// https://modelcontextprotocol.io/specification/2025-11-25/basic/transports. "" is not known: an extension of the host does it.
type Transport string

const (
	TransportStdio Transport = "stdio"
	TransportHTTP  Transport = "http" // Streamable HTTP
	TransportSSE   Transport = "sse"  // HTTP+SSE of 2024-11-05
)

// A Server is one that a host has configured. Its maps and slices belong to whoever got it.
type Server struct {
	Name  string
	Host  string // "" for a file that belongs to no host that is known
	Scope Scope
	// File is the path of the file, and Pointer the place of the entry in it, as a JSON pointer (https://www.rfc-editor.org/rfc/rfc6901), in TOML too.
	File, Pointer string
	// Project is the folder of the project for [ScopeProject] and [ScopeLocal].
	Project string

	Transport Transport
	// Command and Args are what runs the server, without the tap if Wrapped.
	Command string
	Args    []string
	// Env are the variables that the server gets besides those of the host, and EnvFile a file with more.
	Env     map[string]string
	EnvFile string
	Cwd     string
	// URL is that of the server, without the tap if Wrapped and the record of that is still there.
	URL     string
	Headers map[string]string
	// Disabled tells that the host does not start it.
	Disabled bool
	// Timeout is what the host allows for an answer, 0 if the entry does not say.
	Timeout time.Duration
	// Wrapped tells that the entry goes through a tap. Wrapper is the program of that tap, "" if it is one that listens.
	Wrapped bool
	Wrapper string

	// noVariables tells that the host expands no references; the headers that fromEnv names have some of ours, for members that name variables.
	noVariables bool
	fromEnv     []string
}

// Placeholder stands for what [Server.Redacted] does not show.
const Placeholder = "~hidden~"

// Redacted returns a copy that can be shown: values of Env and Headers are replaced by [Placeholder], unless they are nothing but a
// reference to a variable, and so are what looks like a credential in URL. Args are as they were.
func (s Server) Redacted() Server {
	s.Args = slices.Clone(s.Args)
	s.Env = hideValues(s.Env)
	s.Headers = hideValues(s.Headers)
	s.URL = hideURL(s.URL)
	return s
}

// reference is a value that names where the secret is, and is none. A default would be one.
var reference = regexp.MustCompile(`^(Bearer |Basic )?(\$\{[A-Za-z0-9_:.-]*[A-Za-z0-9_.]\}|\$[A-Za-z_][A-Za-z0-9_]*|\{env:[A-Za-z0-9_]+\})$`)

func hideValue(v string) string {
	if v == "" || reference.MatchString(v) && !strings.Contains(v, ":-") {
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

// token is a part of a URL's path that is more likely a key than a word.
var token = regexp.MustCompile(`^[A-Za-z0-9_.~=-]*[0-9][A-Za-z0-9_.~=-]*$`)

// minToken is how long a part of a path must be to be taken for a key.
const minToken = 20

// hideURL hides users, passwords, the values of parameters, and what looks like a key in the path.
func hideURL(text string) string {
	if text == "" {
		return ""
	}
	u, err := url.Parse(text)
	if err != nil || u.Opaque != "" {
		return Placeholder // whatever it is, it may have a password in it
	}
	var b strings.Builder
	scheme, _, path := splitURL(text)
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
		if len(p) >= minToken && token.MatchString(p) {
			parts[i] = Placeholder
		}
	}
	b.WriteString(strings.Join(parts, "/"))
	if u.RawQuery != "" {
		for i, pair := range strings.Split(u.RawQuery, "&") {
			name, value, ok := strings.Cut(pair, "=")
			if i == 0 {
				b.WriteByte('?')
			} else {
				b.WriteByte('&')
			}
			switch {
			case !ok:
				b.WriteString(Placeholder)
			default:
				b.WriteString(name + "=" + hideValue(value))
			}
		}
	}
	if u.Fragment != "" {
		b.WriteString("#" + Placeholder)
	}
	return b.String()
}

// splitURL takes the scheme with its slashes, users and host, and the rest of a URL apart, without a change to any of them: there may be references to
// variables, which a parsed URL has escaped.
func splitURL(text string) (scheme, authority, rest string) {
	if i := strings.Index(text, "//"); i >= 0 && !strings.ContainsAny(text[:i], "/?#") {
		scheme, text = text[:i+2], text[i+2:]
	} else {
		return "", "", text
	}
	end := len(text)
	if i := strings.IndexAny(text, "/?#"); i >= 0 {
		end = i
	}
	return scheme, text[:end], text[end:]
}

// sameAs tells whether two entries mean the same server.
func (s Server) sameAs(t Server) bool {
	return s.Transport == t.Transport && s.Command == t.Command && slices.Equal(s.Args, t.Args) && maps.Equal(s.Env, t.Env) &&
		s.EnvFile == t.EnvFile && s.Cwd == t.Cwd && s.URL == t.URL && maps.Equal(s.Headers, t.Headers) && s.noVariables == t.noVariables
}

// IsRemote tells whether the server is reached over HTTP.
func (s Server) IsRemote() bool { return s.Transport == TransportHTTP || s.Transport == TransportSSE }
