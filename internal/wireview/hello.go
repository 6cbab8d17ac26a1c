package wireview

import (
	"slices"

	"mcpwire/internal/jsonwire"
	"mcpwire/mcp"
)

const (
	maxCapabilities = 64 // names that are kept
	maxSupported    = 16 // revisions that are kept
)

// offer takes what a client says of itself in initialize.
func (s *Session) offer(params []byte, m *Model) {
	if v := text(jsonwire.Lookup(params, "protocolVersion")); v != "" && s.Offered == "" {
		s.Offered = m.name([]byte(v))
	}
	s.Client.info(jsonwire.Lookup(params, "clientInfo"), m)
	s.Client.Capabilities = m.capabilities(jsonwire.Lookup(params, "capabilities"))
}

// hello takes what a server says of itself.
func (s *Session) hello(method string, result []byte, m *Model) {
	if method == mcp.MethodInitialize {
		s.Era = Legacy
		s.Answered = m.name([]byte(text(jsonwire.Lookup(result, "protocolVersion"))))
		s.Server.info(jsonwire.Lookup(result, "serverInfo"), m)
	}
	s.Server.Capabilities = m.capabilities(jsonwire.Lookup(result, "capabilities"))
	s.supports(jsonwire.Lookup(result, "supportedVersions"), m)
}

// supports takes the list of revisions that a server says it knows.
func (s *Session) supports(list []byte, m *Model) {
	if len(list) == 0 || list[0] != '[' {
		return
	}
	s.Supported = nil
	for el := jsonwire.ArrayElements(list); el.Next() && len(s.Supported) < maxSupported; {
		if v := text(el.Value()); v != "" {
			s.Supported = append(s.Supported, m.name([]byte(v)))
		}
	}
}

// info takes the text of an Implementation.
func (p *Peer) info(v []byte, m *Model) {
	if name := text(jsonwire.Lookup(v, "name")); name != "" {
		p.Name, p.Version = m.name([]byte(name)), m.name([]byte(text(jsonwire.Lookup(v, "version"))))
	}
}

// into copies what is known to another.
func (p *Peer) into(other *Peer) {
	if p.Name != "" {
		other.Name, other.Version = p.Name, p.Version
	}
	if p.Capabilities != nil {
		other.Capabilities = p.Capabilities
	}
}

// capabilities returns the names of capabilities, and of what they have inside.
func (m *Model) capabilities(v []byte) []string {
	if len(v) == 0 || v[0] != '{' {
		return nil
	}
	list := []string{}
	for p := jsonwire.ObjectMembers(v); p.Next() && len(list) < maxCapabilities; {
		name := m.name(p.RawKey())
		list = append(list, name)
		inner := p.Value()
		if inner[0] != '{' {
			continue
		}
		for q := jsonwire.ObjectMembers(inner); q.Next() && len(list) < maxCapabilities; {
			if v := q.Value(); string(v) != "false" {
				list = append(list, m.name([]byte(name+"."+string(q.RawKey()[:min(len(q.RawKey()), maxName)]))))
			}
		}
	}
	slices.Sort(list)
	return list
}
