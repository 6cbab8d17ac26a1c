package era

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"

	"mcpwire/internal/json/jsonwire"
	"mcpwire/internal/rpc"
	"mcpwire/internal/text/clip"
	"mcpwire/jsonrpc"
	"mcpwire/mcp"
)

// A ClientProfile describes a client independently of the revision.
type ClientProfile struct {
	Info mcp.Implementation
	// Form and URL are the modes of elicitation.
	Form, URL     bool
	Sampling      bool
	SamplingTools bool
	Roots         bool
	Extensions    map[string]json.RawMessage
	// Extra holds capabilities that replace those of the same name.
	Extra map[string]json.RawMessage
}

// InputSupport says which input requests a client supports.
type InputSupport struct {
	Form, URL, Sampling, SamplingTools, Roots bool
}

// Capabilities returns the ClientCapabilities object for a revision, and the supported input
// requests.
func (p *ClientProfile) Capabilities(f *Features) ([]byte, InputSupport) {
	all := make(map[string]json.RawMessage)
	if p.Roots && f.Modern {
		all["roots"] = json.RawMessage("{}")
	} else if p.Roots {
		all["roots"] = json.RawMessage(`{"listChanged":true}`)
	}
	if p.Sampling {
		all["sampling"] = json.RawMessage("{}")
		if p.SamplingTools && f.SamplingTools {
			all["sampling"] = json.RawMessage(`{"tools":{}}`)
		}
	}
	if modes := p.elicitation(f); modes != "" {
		all["elicitation"] = json.RawMessage(modes)
	}
	if text := p.extensions(f); text != nil {
		all["extensions"] = text
	}
	maps.Copy(all, p.Extra)
	text := appendMembers(nil, all)
	c := Client{Capabilities: text}
	return text, InputSupport{
		Form:          c.Has("elicitation") && (c.Has("elicitation", "form") || !c.Has("elicitation", "url")),
		URL:           c.Has("elicitation", "url"),
		Sampling:      c.Has("sampling"),
		SamplingTools: c.Has("sampling", "tools"),
		Roots:         c.Has("roots"),
	}
}

func (p *ClientProfile) elicitation(f *Features) string {
	url := p.URL && f.URLElicitation
	switch {
	case !f.Elicitation || !p.Form && !url:
		return ""
	case !f.URLElicitation:
		return "{}"
	case p.Form && url:
		return `{"form":{},"url":{}}`
	case url:
		return `{"url":{}}`
	}
	return `{"form":{}}`
}

// extensions returns capabilities.extensions. Legacy revisions have core tasks, not the extension.
func (p *ClientProfile) extensions(f *Features) []byte {
	own := maps.Clone(p.Extensions)
	if !f.Modern {
		delete(own, mcp.ExtensionTasks)
	}
	if len(own) == 0 {
		return nil
	}
	return appendMembers(nil, own)
}

// appendMembers appends an object with sorted members.
func appendMembers(dst []byte, members map[string]json.RawMessage) []byte {
	dst = append(dst, '{')
	for i, name := range slices.Sorted(maps.Keys(members)) {
		if i > 0 {
			dst = append(dst, ',')
		}
		dst = append(jsonwire.AppendQuote(dst, name), ':')
		dst = jsonwire.AppendCompact(dst, members[name])
	}
	return append(dst, '}')
}

// AppendMeta appends the _meta of a modern request without the closing brace.
func (p *ClientProfile) AppendMeta(dst []byte, f *Features, capabilities []byte) []byte {
	dst = jsonwire.AppendQuote(append(dst, `{"`+mcp.MetaProtocolVersion+`":`...), f.Revision.String())
	dst = append(append(dst, `,"`+mcp.MetaClientCapabilities+`":`...), capabilities...)
	return NewIdentity(p.Info).AppendInfo(append(dst, `,"`+mcp.MetaClientInfo+`":`...), f)
}

// AppendInitialize appends the params of initialize.
func (p *ClientProfile) AppendInitialize(dst []byte, f *Features, capabilities []byte) []byte {
	dst = jsonwire.AppendQuote(append(dst, `{"protocolVersion":`...), f.Revision.String())
	dst = append(append(dst, `,"capabilities":`...), capabilities...)
	return append(NewIdentity(p.Info).AppendInfo(append(dst, `,"clientInfo":`...), f), '}')
}

// A ServerProfile describes a server of either era.
type ServerProfile struct {
	// Versions holds the names of versions, which may be unknown.
	Versions []string
	Info     mcp.Implementation
	// Capabilities is the JSON text of a ServerCapabilities object.
	Capabilities []byte
	Instructions string
}

// ReadDiscover parses the result of server/discover. The profile aliases result.
func ReadDiscover(result []byte) (*ServerProfile, error) {
	p, versions, err := readServerProfile(result, "supportedVersions")
	if err != nil {
		return nil, err
	}
	if t := ResultType(result); t != "" && t != mcp.ResultTypeComplete {
		return nil, fmt.Errorf("resultType is %q", clip.String(string(t), 100))
	}
	var ok bool
	if p.Versions, ok = StringArray(versions); !ok {
		return nil, fmt.Errorf("supportedVersions is not an array of strings")
	}
	return p, nil
}

// ReadInitialize parses the result of initialize. The profile aliases result.
func ReadInitialize(result []byte) (*ServerProfile, error) {
	p, version, err := readServerProfile(result, "protocolVersion")
	if err != nil {
		return nil, err
	}
	name, ok := jsonwire.String(version)
	if !ok {
		return nil, fmt.Errorf("protocolVersion is not a string")
	}
	p.Versions = []string{name}
	return p, nil
}

// readServerProfile parses the common members of both results. It returns the value of the named
// member in versions.
func readServerProfile(result []byte, name string) (p *ServerProfile, versions []byte, err error) {
	if len(result) == 0 || result[0] != '{' {
		return nil, nil, fmt.Errorf("the result is not an object")
	}
	p = &ServerProfile{Capabilities: []byte("{}")}
	members := jsonwire.ObjectMembers(result)
	for members.Next() {
		v := members.Value()
		switch {
		case members.KeyIs(name):
			versions = v
		case members.KeyIs("capabilities") && v[0] == '{':
			p.Capabilities = v
		case members.KeyIs("instructions"):
			p.Instructions = jsonwire.Text(v)
		case members.KeyIs("serverInfo"):
			p.Info = parseImplementation(v)
		case members.KeyIs("_meta") && v[0] == '{':
			if info := jsonwire.Lookup(v, mcp.MetaServerInfo); info != nil {
				p.Info = parseImplementation(info)
			}
		}
	}
	if versions == nil {
		return nil, nil, fmt.Errorf("%s is missing", name)
	}
	return p, versions, nil
}

// StringArray parses an array of strings.
func StringArray(text []byte) (list []string, ok bool) {
	if len(text) == 0 || text[0] != '[' {
		return nil, false
	}
	list = []string{}
	elements := jsonwire.ArrayElements(text)
	for elements.Next() {
		s, ok := jsonwire.String(elements.Value())
		if !ok {
			return nil, false
		}
		list = append(list, s)
	}
	return list, true
}

// A ProbeResult says what the outcome of server/discover shows about a server.
type ProbeResult uint8

// The results of a probe.
const (
	// ProbeLegacy means that no modern server gives this answer: initialize follows. If there was
	// no answer, the connection has ended or is of no further use, and initialize needs another.
	ProbeLegacy ProbeResult = iota
	// ProbeModern means that the server is modern, perhaps with none of our revisions.
	ProbeModern
	// ProbeBusy means that the request failed on its way, or that the server is overloaded: the
	// probe is repeated a few times, and then initialize follows.
	ProbeBusy
	// ProbeDenied means that the client may not use the server, of whatever era.
	ProbeDenied
)

// JudgeProbe evaluates the result of server/discover, or the error instead of one. Every client of
// this module decides with it how to go on. server is what a modern server says about itself; after
// an error it has only Versions, which is nil if the error names none. The cause is err, or says
// what is wrong with result. Spec:
// https://modelcontextprotocol.io/specification/2026-07-28/basic/versioning
func JudgeProbe(result []byte, err error) (r ProbeResult, server *ServerProfile, cause error) {
	if err == nil {
		if server, err = ReadDiscover(result); err != nil {
			return ProbeLegacy, nil, err
		}
		return ProbeModern, server, nil
	}
	if e, ok := errors.AsType[*jsonrpc.Error](err); ok && IsModernError(e) {
		return ProbeModern, &ServerProfile{Versions: SupportedVersions(e)}, err
	}
	if failed, ok := errors.AsType[*jsonrpc.CallError](err); ok {
		switch {
		case failed.Outcome == jsonrpc.OutcomeDenied:
			return ProbeDenied, nil, err
		case failed.Outcome == jsonrpc.OutcomeRejected || errors.Is(err, jsonrpc.ErrMalformed):
			return ProbeLegacy, nil, err
		}
		return ProbeBusy, nil, err
	}
	return ProbeLegacy, nil, err
}

// IsModernError reports if only modern servers send an error with this code. A client must not
// treat such a server as legacy.
func IsModernError(e *jsonrpc.Error) bool {
	switch e.Code {
	case mcp.CodeHeaderMismatch, mcp.CodeMissingRequiredClientCapability, mcp.CodeUnsupportedProtocolVersion:
		return true
	}
	return false
}

// SupportedVersions returns the versions in the data of a version error, or nil.
func SupportedVersions(e *jsonrpc.Error) []string {
	list, _ := StringArray(jsonwire.Lookup(e.Data, "supported"))
	return list
}

// Common returns the newest revision of each era that is in ours and theirs, or RevisionNone.
func Common(ours []mcp.Revision, theirs []string) (modern, legacy mcp.Revision) {
	named := func(r mcp.Revision) bool { return slices.Contains(theirs, r.String()) }
	return latest(ours, func(r mcp.Revision) bool { return r.Modern() && named(r) }),
		latest(ours, func(r mcp.Revision) bool { return !r.Modern() && named(r) })
}

// Newest returns the newest revision of each era, or RevisionNone.
func Newest(ours []mcp.Revision) (modern, legacy mcp.Revision) {
	return latest(ours, mcp.Revision.Modern), latest(ours, func(r mcp.Revision) bool { return !r.Modern() })
}

// ResultType returns the resultType of a result object. It returns "" if that is absent, and "?" if
// it is empty or not a string.
func ResultType(result []byte) mcp.ResultType {
	v := jsonwire.Lookup(result, "resultType")
	if v == nil {
		return ""
	}
	return ParseResultType(v)
}

// ParseResultType returns the value of a resultType. It returns "?" if that is empty or not a
// string.
func ParseResultType(v []byte) mcp.ResultType {
	switch {
	case string(v) == `"complete"`:
		return mcp.ResultTypeComplete // does not allocate
	case v[0] == '"' && len(v) > 2:
		return mcp.ResultType(jsonwire.UnquoteString(v[1 : len(v)-1]))
	}
	return "?"
}

// AllowsInput reports if a modern server may answer the method with input_required.
func AllowsInput(method string) bool {
	switch method {
	case mcp.MethodToolsCall, mcp.MethodPromptsGet, mcp.MethodResourcesRead:
		return true
	}
	return false
}

// ServerMayAsk reports if a legacy server may send input requests while it handles the method. They
// are allowed in more methods than in a modern revision, see [AllowsInput].
func ServerMayAsk(method string) bool {
	return AllowsInput(method) || method == mcp.MethodComplete
}

// ClientPolicy returns the policy of a client's connection. f is nil before negotiation. It allows
// batches in all revisions, because refusing one would lose its responses.
func ClientPolicy(f *Features) rpc.Policy {
	return rpc.Policy{OmitNullID: true, NoErrorsWithoutID: true, DropRequests: f != nil && f.Modern}
}

// parseImplementation decodes an Implementation from valid JSON text. Missing and invalid members
// stay empty: identity is informational, so a peer is not rejected for it.
func parseImplementation(text []byte) mcp.Implementation {
	var i mcp.Implementation
	if len(text) == 0 || text[0] != '{' {
		return i
	}
	members := jsonwire.ObjectMembers(text)
	for members.Next() {
		v := members.Value()
		if v[0] == '[' && members.KeyIs("icons") {
			i.Icons = parseIcons(v)
			continue
		}
		if v[0] != '"' {
			continue
		}
		s := jsonwire.UnquoteString(v[1 : len(v)-1])
		switch {
		case members.KeyIs("name"):
			i.Name = s
		case members.KeyIs("version"):
			i.Version = s
		case members.KeyIs("title"):
			i.Title = s
		case members.KeyIs("description"):
			i.Description = s
		case members.KeyIs("websiteUrl"):
			i.WebsiteURL = s
		}
	}
	return i
}

// parseIcons decodes an array of icons. It skips invalid ones.
func parseIcons(array []byte) (icons []mcp.Icon) {
	elements := jsonwire.ArrayElements(array)
	for elements.Next() {
		var icon mcp.Icon
		if icon.UnmarshalJSON(elements.Value()) == nil {
			icons = append(icons, icon)
		}
	}
	return icons
}
