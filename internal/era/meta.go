package era

import (
	"bytes"
	"fmt"

	"mcpwire/internal/jsonwire"
	"mcpwire/jsonrpc"
	"mcpwire/mcp"
)

// Meta is what a request's _meta says. Its slices are its own; it is shared by requests with the same text, so it must not be changed.
type Meta struct {
	ProgressToken []byte // JSON text, a string or an integer; nil if there is none
	Trace         jsonrpc.Trace
	LogLevel      mcp.LoggingLevel // modern; LevelNone if the client wants no log messages

	client          Client
	version         string
	revision        mcp.Revision // that version names; RevisionNone if it is none that is known
	hasVersion      bool
	versionIsString bool // the version is a string, as it must be
	hasCaps         bool
	problem         string // what makes it unusable for a modern request
	text            []byte // what it was parsed from
}

// A Client is what a client says of itself: once in the handshake, or with each request.
type Client struct {
	Info         mcp.Implementation
	Capabilities []byte // JSON text of the ClientCapabilities object; nil if none were given

	// LogLevel is the level that a legacy client has set by logging/setLevel. LevelNone is all.
	LogLevel mcp.LoggingLevel
}

// Has reports whether the client declared a capability, and each nested one that is named after it.
func (c *Client) Has(path ...string) bool { return c.Capability(path...) != nil }

// Capability returns the JSON text of what the client declared, nil if it did not. It must not be changed.
func (c *Client) Capability(path ...string) []byte {
	at := c.Capabilities
	for _, name := range path {
		if len(at) == 0 || at[0] != '{' {
			return nil
		}
		members := jsonwire.ObjectMembers(at)
		at = nil
		for members.Next() {
			if members.KeyIs(name) {
				at = members.Value()
			}
		}
		if at == nil || string(at) == "null" {
			return nil
		}
	}
	return at
}

// Extension returns the settings that the client declared for an extension, the text of an object; nil if it did not declare it. Legacy revisions have
// tasks of their own, so the extension for them does not count there.
func (c *Client) Extension(f *Features, id string) []byte {
	settings := c.Capability("extensions", id)
	if len(settings) == 0 || settings[0] != '{' || !f.Modern && id == ExtensionTasks {
		return nil
	}
	return settings
}

var noMeta = &Meta{}

// Text returns the JSON text of the _meta object; nil if there is none.
func (m *Meta) Text() []byte { return m.text }

// parseMeta reads the text of a _meta object, which is valid JSON.
func parseMeta(text []byte) *Meta {
	m := &Meta{text: bytes.Clone(text)}
	var seen [8]bool
	members := jsonwire.ObjectMembers(m.text)
	for members.Next() {
		key := members.RawKey()
		if bytes.IndexByte(key, '\\') >= 0 {
			key = jsonwire.AppendUnquote(nil, key)
		}
		if i := m.read(key, members.Value()); i > 0 {
			if seen[i] && m.problem == "" {
				m.problem = fmt.Sprintf("member %s of _meta stands twice", key)
			}
			seen[i] = true
		}
	}
	if seen[5] {
		m.Trace = jsonrpc.TraceOfMeta(m.text)
	}
	return m
}

// read takes one member and returns a number for each known one. null stands for the absence of what is optional.
func (m *Meta) read(key, v []byte) int {
	text, isText := stringValue(v)
	null := string(v) == "null"
	switch string(key) {
	case mcp.MetaProtocolVersion:
		m.version, m.hasVersion, m.versionIsString = text, true, isText
		m.revision, _ = mcp.ParseRevision(text)
		if !isText {
			m.setProblem(key, "a string")
		}
		return 1
	case mcp.MetaClientCapabilities:
		m.hasCaps = true
		if m.client.Capabilities = v; v[0] != '{' {
			m.setProblem(key, "an object")
		}
		return 2
	case mcp.MetaClientInfo:
		m.client.Info = mcp.ParseImplementation(v)
		return 3
	case mcp.MetaLogLevel:
		var ok bool
		if m.LogLevel, ok = mcp.ParseLoggingLevel(text); !ok && !null {
			m.setProblem(key, "one of debug, info, notice, warning, error, critical, alert, emergency")
		}
		return 4
	case "traceparent":
		return 5
	case mcp.MetaProgressToken:
		if jsonrpc.ID(v).Valid() {
			m.ProgressToken = v
		} else if !null {
			m.setProblem(key, "a string or an integer")
		}
		return 6
	}
	return 0
}

func (m *Meta) setProblem(key []byte, want string) {
	if m.problem == "" {
		m.problem = fmt.Sprintf("params._meta[%q] must be %s", key, want)
	}
}

// checkModern says what keeps the metadata from being that of a modern request, of which spoken are the revisions that are spoken here.
func (m *Meta) checkModern(supported []mcp.Revision) string {
	switch {
	case m.problem != "":
		return m.problem
	case !m.hasVersion:
		return fmt.Sprintf("params._meta[%q] is missing (supported: %v)", mcp.MetaProtocolVersion, supported)
	case !m.hasCaps:
		return fmt.Sprintf("params._meta[%q] is missing ({} means none)", mcp.MetaClientCapabilities)
	}
	return ""
}

func stringValue(v []byte) (s string, ok bool) {
	if len(v) < 2 || v[0] != '"' {
		return "", false
	}
	return jsonwire.UnquoteString(v[1 : len(v)-1]), true
}
