package era

import (
	"strconv"

	"mcpwire/jsonrpc"
	"mcpwire/mcp"
)

// ConvertError returns an error that a server of the other era answered a request of the method with, as one of the revision would. What has no
// counterpart becomes an internal error whose data say what it was.
func ConvertError(e *jsonrpc.Error, method string, to *Features) *jsonrpc.Error {
	if to.Modern {
		switch {
		case e.Code == mcp.CodeResourceNotFound:
			return &jsonrpc.Error{Code: jsonrpc.CodeInvalidParams, Message: e.Message, Data: e.Data}
		case e.Code <= firstReserved && e.Code >= lastReserved: // a legacy server did not mean what these mean by now
			return wrapForeignError(e)
		}
		return e
	}
	switch {
	case e.Code == jsonrpc.CodeInvalidParams && method == mcp.MethodResourcesRead && Lookup(e.Data, "uri") != nil:
		return &jsonrpc.Error{Code: mcp.CodeResourceNotFound, Message: e.Message, Data: e.Data}
	case e.Code == mcp.CodeMissingRequiredClientCapability:
		return &jsonrpc.Error{Code: jsonrpc.CodeInvalidRequest, Message: e.Message, Data: e.Data}
	case IsModernError(e):
		return wrapForeignError(e)
	}
	return e
}

// The codes that the protocol reserves for itself since 2026-07-28.
const (
	firstReserved jsonrpc.Code = -32020
	lastReserved  jsonrpc.Code = -32099
)

// wrapForeignError wraps an error whose code means something else, or nothing, in the other era.
func wrapForeignError(e *jsonrpc.Error) *jsonrpc.Error {
	data := strconv.AppendInt([]byte(`{"code":`), int64(e.Code), 10)
	if len(e.Data) > 0 {
		data = append(append(data, `,"data":`...), e.Data...)
	}
	return &jsonrpc.Error{Code: jsonrpc.CodeInternalError, Message: e.Message, Data: append(data, '}')}
}
