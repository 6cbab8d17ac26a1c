package mcpotel

import (
	"sync"

	"mcpwire/jsonrpc"
	"mcpwire/mcp"
	"mcpwire/server"
)

const (
	maxNames     = 1000 // that metrics of a Telemetry's clients have
	maxNameBytes = 200  // of one
)

// nameSet are those of tools and prompts that servers were seen to have. What a client calls need not be there: models make names up.
type nameSet struct {
	mu    sync.Mutex
	known map[string]struct{}
}

// allow reports whether metrics may have a name. exists tells that a server has just answered with what it names.
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

// withKnownCode returns what metrics say of a failure that the peer has answered with: it can make up any code.
func (f failure) withKnownCode() failure {
	switch f.code {
	case 0, jsonrpc.CodeParseError, jsonrpc.CodeInvalidRequest, jsonrpc.CodeMethodNotFound, jsonrpc.CodeInvalidParams, jsonrpc.CodeInternalError,
		mcp.CodeHeaderMismatch, mcp.CodeMissingRequiredClientCapability, mcp.CodeUnsupportedProtocolVersion, mcp.CodeResourceNotFound,
		mcp.CodeURLElicitationRequired, server.CodeTooManyRequests, codeUserRejected:
		return f
	}
	return failure{errorType: errorOther}
}

// codeUserRejected is what the specification's clients answer with if the user does not want to be asked
// (https://modelcontextprotocol.io/specification/2025-11-25/client/sampling#error-handling).
const codeUserRejected jsonrpc.Code = -1
