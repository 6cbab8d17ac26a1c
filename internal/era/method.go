package era

import "mcpwire/mcp"

// HasMethod reports whether clients of the revision may send the request to a server that has the capability for it.
func (f *Features) HasMethod(method []byte) bool {
	switch string(method) {
	case mcp.MethodToolsCall, mcp.MethodToolsList, mcp.MethodPromptsGet, mcp.MethodPromptsList, mcp.MethodComplete,
		mcp.MethodResourcesList, mcp.MethodResourceTemplatesList, mcp.MethodResourcesRead:
		return true
	case mcp.MethodPing, mcp.MethodInitialize, mcp.MethodSetLevel, mcp.MethodResourcesSubscribe, mcp.MethodResourcesUnsubscribe:
		return !f.Modern
	case mcp.MethodDiscover, mcp.MethodSubscriptionsListen:
		return f.Modern
	case mcp.MethodTasksGet, mcp.MethodTasksCancel:
		return f.CoreTasks || f.Modern
	case mcp.MethodTasksResult, mcp.MethodTasksList:
		return f.CoreTasks
	case mcp.MethodTasksUpdate:
		return f.Modern
	}
	return false
}
