package wireclient

import (
	"bytes"
	"net/http"

	"mcpwire/internal/era"
	"mcpwire/internal/json/jsonwire"
	"mcpwire/mcp"
)

// A HeaderMirror sets the headers that repeat parts of a modern message
// (https://modelcontextprotocol.io/specification/2026-07-28/basic/transports/streamable-http#standard-request-headers).
// It reads messages leniently. The zero value is ready to use.
type HeaderMirror struct {
	// Version is the revision of messages that name none. Empty means that these are not modern.
	Version string
	// Params has the arguments that headers repeat, by the tool's name.
	Params map[string][]mcp.HeaderParam
}

// Set sets the headers for a message. Legacy messages and batches get none.
func (hm *HeaderMirror) Set(h http.Header, message []byte) {
	message = bytes.TrimSpace(message)
	if jsonwire.Valid(message, 0) != nil {
		return
	}
	method := jsonwire.Text(jsonwire.Lookup(message, "method"))
	params := jsonwire.Lookup(message, "params")
	version := jsonwire.Text(jsonwire.Lookup(params, "_meta", mcp.MetaProtocolVersion))
	if version == "" && method != "" {
		version = hm.Version
	}
	if version == "" {
		return
	}
	h.Set(HeaderVersion, era.EncodeHeaderValue(version))
	if method == "" {
		return
	}
	h.Set(HeaderMethod, era.EncodeHeaderValue(method))
	param := era.NameParam(method)
	text := jsonwire.Lookup(params, param)
	if param == "" || len(text) == 0 || text[0] != '"' {
		return
	}
	name := jsonwire.Text(text)
	h.Set(HeaderName, era.EncodeHeaderValue(name))
	if method != mcp.MethodToolsCall {
		return
	}
	arguments := jsonwire.Lookup(params, "arguments")
	for _, p := range hm.Params[name] {
		argument := jsonwire.Lookup(arguments, p.Path...)
		if argument == nil {
			continue
		}
		if value, ok := era.EncodeHeaderArgument(argument); ok {
			h.Set(HeaderParam+p.Header, value)
		}
	}
}

// maxLearned limits the tools of [LearnParams].
const maxLearned = 10_000

// LearnParams adds the arguments that headers repeat, by the tool's name, in a result of tools/list
// to known, and returns it. known may be nil.
func LearnParams(known map[string][]mcp.HeaderParam, result []byte) map[string][]mcp.HeaderParam {
	list := jsonwire.ArrayElements(jsonwire.Lookup(result, "tools"))
	for list.Next() {
		if list.Value()[0] != '{' {
			continue
		}
		schema := jsonwire.Lookup(list.Value(), "inputSchema")
		params, err := mcp.HeaderParams(schema)
		name := jsonwire.Text(jsonwire.Lookup(list.Value(), "name"))
		switch {
		case schema == nil || err != nil || len(params) == 0:
			delete(known, name)
		case len(known) < maxLearned:
			if known == nil {
				known = map[string][]mcp.HeaderParam{}
			}
			known[name] = params
		}
	}
	return known
}
