package era

import "mcpwire/mcp"

// NameParam returns the parameter that the header Mcp-Name repeats in requests of a method, "" if there is none
// (https://modelcontextprotocol.io/specification/2026-07-28/basic/transports/streamable-http#standard-request-headers).
func NameParam[T ~string | ~[]byte](method T) string {
	switch string(method) {
	case mcp.MethodToolsCall, mcp.MethodPromptsGet:
		return "name"
	case mcp.MethodResourcesRead:
		return "uri"
	case mcp.MethodTasksGet, mcp.MethodTasksUpdate, mcp.MethodTasksCancel:
		return "taskId"
	}
	return ""
}
