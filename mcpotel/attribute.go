package mcpotel

import (
	"context"
	"errors"
	"strconv"
	"sync"

	"go.opentelemetry.io/otel/attribute"

	"mcpwire/internal/json/jsonwire"
	"mcpwire/jsonrpc"
	"mcpwire/mcp"
	"mcpwire/server"
)

// These are the attributes of the conventions.
const (
	attrMethod     = attribute.Key("mcp.method.name")
	attrVersion    = attribute.Key("mcp.protocol.version")
	attrResource   = attribute.Key("mcp.resource.uri")
	attrRequestID  = attribute.Key("jsonrpc.request.id")
	attrStatusCode = attribute.Key("rpc.response.status_code")
	attrErrorType  = attribute.Key("error.type")
	attrTool       = attribute.Key("gen_ai.tool.name")
	attrPrompt     = attribute.Key("gen_ai.prompt.name")
	attrOperation  = attribute.Key("gen_ai.operation.name")
	attrArguments  = attribute.Key("gen_ai.tool.call.arguments")
	attrResult     = attribute.Key("gen_ai.tool.call.result")
	attrTransport  = attribute.Key("network.transport")
)

// These are the values of error.type other than JSON-RPC codes.
const (
	errorTool     = "tool_error"
	errorTimeout  = "timeout"
	errorCanceled = "cancelled"
	errorClosed   = "closed"
	errorPanic    = "panic"
	errorOther    = "_OTHER"
)

// A failure describes a failed operation in terms of the conventions. The zero failure is a
// success.
type failure struct {
	// errorType is the value of error.type.
	errorType string
	// code is the code of the JSON-RPC error, or 0.
	code    jsonrpc.Code
	message string
}

// failureOf returns the failure for an error. answered is set if the peer gets err as a response.
func failureOf(err error, answered bool) failure {
	var e *jsonrpc.Error
	switch {
	case err == nil:
		return failure{}
	case errors.As(err, &e):
	case answered:
		e = jsonrpc.ErrorOf(err)
	case errors.Is(err, context.Canceled):
		return failure{errorType: errorCanceled, message: "cancelled"}
	case errors.Is(err, context.DeadlineExceeded):
		return failure{errorType: errorTimeout, message: err.Error()}
	case errors.Is(err, jsonrpc.ErrClosed), errors.Is(err, jsonrpc.ErrRequestEnded):
		return failure{errorType: errorClosed, message: err.Error()}
	default:
		return failure{errorType: errorOther, message: err.Error()}
	}
	return failure{errorType: strconv.Itoa(int(e.Code)), code: e.Code, message: e.Message}
}

func (f failure) attributes() []attribute.KeyValue {
	var attrs []attribute.KeyValue
	if f.errorType != "" {
		attrs = append(attrs, attrErrorType.String(f.errorType))
	}
	if f.code != 0 {
		attrs = append(attrs, attrStatusCode.String(strconv.Itoa(int(f.code))))
	}
	return attrs
}

// toolFailed reports whether a tool's result has isError.
func toolFailed(result []byte) bool {
	return string(jsonwire.Lookup(result, "isError")) == "true"
}

// stringMember returns a string member of an object, or "".
func stringMember(object []byte, name string) string {
	v := jsonwire.Lookup(object, name)
	if len(v) < 2 || v[0] != '"' {
		return ""
	}
	return jsonwire.UnquoteString(v[1 : len(v)-1])
}

// requestID returns the id in the form of the conventions.
func requestID(id jsonrpc.ID) string {
	if s, ok := id.Text(); ok {
		return s
	}
	return id.String()
}

// namesResource reports whether messages of the method have a URI.
func namesResource(method string) bool {
	switch method {
	case mcp.MethodResourcesRead, mcp.MethodResourcesSubscribe, mcp.MethodResourcesUnsubscribe, mcp.NotificationResourceUpdated:
		return true
	}
	return false
}

const (
	maxNames     = 1000 // recorded by the metrics of clients
	maxNameBytes = 200
)

// nameSet holds the names of tools and prompts that are known to exist. A client may call others,
// since models make names up.
type nameSet struct {
	mu    sync.Mutex
	known map[string]struct{}
}

// allow reports whether metrics may record a name. exists is set if a server has just answered for
// it.
func (n *nameSet) allow(name string, exists bool) bool {
	if len(name) > maxNameBytes {
		return false
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	_, ok := n.known[name]
	if ok || !exists || len(n.known) >= maxNames {
		return ok
	}
	if n.known == nil {
		n.known = make(map[string]struct{})
	}
	n.known[name] = struct{}{}
	return true
}

// withKnownCode returns the failure for metrics. It removes unknown codes, since a peer can send
// any code.
func (f failure) withKnownCode() failure {
	switch f.code {
	case 0, jsonrpc.CodeParseError, jsonrpc.CodeInvalidRequest, jsonrpc.CodeMethodNotFound, jsonrpc.CodeInvalidParams, jsonrpc.CodeInternalError,
		mcp.CodeHeaderMismatch, mcp.CodeMissingRequiredClientCapability, mcp.CodeUnsupportedProtocolVersion, mcp.CodeResourceNotFound,
		mcp.CodeURLElicitationRequired, server.CodeTooManyRequests, codeUserRejected:
		return f
	}
	return failure{errorType: errorOther}
}

// codeUserRejected is the specification's error code for a user who rejects an input request
// (https://modelcontextprotocol.io/specification/2025-11-25/client/sampling#error-handling).
const codeUserRejected jsonrpc.Code = -1
