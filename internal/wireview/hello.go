package trace

import (
	"slices"

	"mcpwire/internal/jsonwire"
	"mcpwire/mcp"
)

const (
	maxCapabilities = 64 // names that are kept
	maxSupported    = 16 // revisions that are kept
)

// setClient takes what a client says of itself in initialize.
func (s *Session) setClient(params []byte, m *Model) {
	if v := stringText(jsonwire.Lookup(params, "protocolVersion")); v != "" && s.Offered == "" {
		s.Offered = m.intern([]byte(v))
	}
	s.Client.setImplementation(jsonwire.Lookup(params, "clientInfo"), m)
	s.Client.Capabilities = m.capabilityNames(jsonwire.Lookup(params, "capabilities"))
}

// setServer takes what a server says of itself.
func (s *Session) setServer(method string, result []byte, m *Model) {
	if method == mcp.MethodInitialize {
		s.Era = EraLegacy
		s.Negotiated = m.intern([]byte(stringText(jsonwire.Lookup(result, "protocolVersion"))))
		s.Server.setImplementation(jsonwire.Lookup(result, "serverInfo"), m)
	}
	s.Server.Capabilities = m.capabilityNames(jsonwire.Lookup(result, "capabilities"))
	s.setSupported(jsonwire.Lookup(result, "supportedVersions"), m)
}

// setSupported takes the list of revisions that a server says it knows.
func (s *Session) setSupported(list []byte, m *Model) {
	if len(list) == 0 || list[0] != '[' {
		return
	}
	s.Supported = nil
	for el := jsonwire.ArrayElements(list); el.Next() && len(s.Supported) < maxSupported; {
		if v := stringText(el.Value()); v != "" {
			s.Supported = append(s.Supported, m.intern([]byte(v)))
		}
	}
}

// setImplementation takes the text of an Implementation.
func (p *PeerInfo) setImplementation(v []byte, m *Model) {
	if name := stringText(jsonwire.Lookup(v, "name")); name != "" {
		p.Name, p.Version = m.intern([]byte(name)), m.intern([]byte(stringText(jsonwire.Lookup(v, "version"))))
	}
}

// copyTo copies what is known to another.
func (p *PeerInfo) copyTo(other *PeerInfo) {
	if p.Name != "" {
		other.Name, other.Version = p.Name, p.Version
	}
	if p.Capabilities != nil {
		other.Capabilities = p.Capabilities
	}
}

// capabilityNames returns the names of capabilities, and of what they have inside.
func (m *Model) capabilityNames(v []byte) []string {
	if len(v) == 0 || v[0] != '{' {
		return nil
	}
	list := []string{}
	for p := jsonwire.ObjectMembers(v); p.Next() && len(list) < maxCapabilities; {
		name := m.intern(p.RawKey())
		list = append(list, name)
		inner := p.Value()
		if inner[0] != '{' {
			continue
		}
		for q := jsonwire.ObjectMembers(inner); q.Next() && len(list) < maxCapabilities; {
			if v := q.Value(); string(v) != "false" {
				list = append(list, m.intern([]byte(name+"."+string(q.RawKey()[:min(len(q.RawKey()), maxName)]))))
			}
		}
	}
	slices.Sort(list)
	return list
}
