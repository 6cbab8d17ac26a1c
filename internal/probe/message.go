package probe

import (
	"encoding/json"

	"mcpwire/jsonrpc"
	"mcpwire/mcp"
)

// Names that no server has.
const (
	noSuchTool         = "mcpwire-probe-no-such-tool-7f3a"
	noSuchPrompt       = "mcpwire-probe-no-such-prompt-7f3a"
	noSuchResource     = "mcpwire-probe://no-such-resource/7f3a"
	noSuchMethod       = "mcpwire/probe-no-such-method"
	noSuchNotification = "notifications/mcpwire/probe-no-such-notification"
	noSuchCursor       = "mcpwire-probe-no-such-cursor"
	noSuchVersion      = "1999-12-31" // what no revision is called
	hostileOrigin      = "http://mcpwire-probe.invalid"
	hostileHost        = "mcpwire-probe.invalid"
)

// An object is the members of a JSON object. encoding/json sorts them, so that probes are the same each time.
type object = map[string]any

// encode returns JSON text. It is only called with what can be encoded.
func encode(v any) []byte {
	text, err := json.Marshal(v)
	if err != nil {
		panic("probe: " + err.Error()) // a programming error
	}
	return text
}

// request returns a request with an id that is JSON text.
func request(id, method string, params object) []byte {
	var text []byte
	if params != nil {
		text = encode(params)
	}
	return jsonrpc.AppendRequest(nil, jsonrpc.ID(id), method, text)
}

func notification(method string, params object) []byte {
	var text []byte
	if params != nil {
		text = encode(params)
	}
	return jsonrpc.AppendNotification(nil, method, text)
}

// implementation is how the probe calls itself.
func (r *run) implementation() object {
	return object{"name": r.opts.Client, "version": r.opts.Version}
}

// initialize are the parameters of a legacy handshake.
func (r *run) initialize(version string) object {
	return object{"protocolVersion": version, "capabilities": object{}, "clientInfo": r.implementation()}
}

// meta is the metadata of a modern request
// (https://modelcontextprotocol.io/specification/2026-07-28/basic#_meta).
func (r *run) meta(version string) object {
	return object{
		mcp.MetaProtocolVersion:    version,
		mcp.MetaClientCapabilities: object{},
		mcp.MetaClientInfo:         r.implementation(),
	}
}
