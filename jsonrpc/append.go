package jsonrpc

import (
	"bytes"
	"strconv"

	"mcpwire/internal/jsonwire"
)

// The Append functions append one message, without framing, to dst and return it. They check nothing: params, result and data must be valid
// JSON without raw line breaks (see [OneLine]).

// AppendRequest appends a request. Nil params are left out.
func AppendRequest(dst []byte, id ID, method string, params []byte) []byte {
	dst = append(dst, `{"jsonrpc":"2.0","id":`...)
	dst = append(dst, id...)
	return appendMethod(append(dst, ','), method, params)
}

// AppendNotification appends a notification. Nil params are left out.
func AppendNotification(dst []byte, method string, params []byte) []byte {
	return appendMethod(append(dst, `{"jsonrpc":"2.0",`...), method, params)
}

func appendMethod(dst []byte, method string, params []byte) []byte {
	dst = jsonwire.AppendQuote(append(dst, `"method":`...), method)
	if params != nil {
		dst = append(append(dst, `,"params":`...), params...)
	}
	return append(dst, '}')
}

// AppendResult appends a response.
func AppendResult(dst []byte, id ID, result []byte) []byte {
	dst = append(appendResultHead(dst, id), result...)
	return append(dst, '}')
}

func appendResultHead(dst []byte, id ID) []byte {
	dst = append(dst, `{"jsonrpc":"2.0","id":`...)
	dst = append(dst, id...)
	return append(dst, `,"result":`...)
}

// AppendError appends an error response. An empty id is written as null if nullID, and left out otherwise: JSON-RPC asks for null, the newer
// revisions of MCP have no null id in their schemas.
func AppendError(dst []byte, id ID, e *Error, nullID bool) []byte {
	dst = append(dst, `{"jsonrpc":"2.0",`...)
	if len(id) > 0 {
		dst = append(append(append(dst, `"id":`...), id...), ',')
	} else if nullID {
		dst = append(dst, `"id":null,`...)
	}
	code := e.Code
	if code == 0 {
		code = CodeInternalError // no path sends code 0
	}
	dst = strconv.AppendInt(append(dst, `"error":{"code":`...), int64(code), 10)
	dst = jsonwire.AppendQuote(append(dst, `,"message":`...), e.Message)
	if len(e.Data) > 0 {
		dst = append(append(dst, `,"data":`...), e.Data...)
	}
	return append(dst, "}}"...)
}

// OneLine returns text without raw line breaks, so that it can stand in a line: text itself if it has none. text must be valid JSON.
func OneLine(text []byte) []byte {
	if bytes.IndexByte(text, '\n') < 0 && bytes.IndexByte(text, '\r') < 0 {
		return text
	}
	return jsonwire.AppendCompact(nil, text)
}
