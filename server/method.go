package server

import "mcpwire/mcp"

// methodNames are those that the server itself answers, so that their names need not be made anew for each request.
var methodNames = func() map[string]string {
	names := make(map[string]string)
	for _, name := range []string{
		mcp.MethodInitialize, mcp.MethodPing, mcp.MethodDiscover, mcp.MethodSetLevel, mcp.MethodSubscriptionsListen, mcp.MethodToolsList, mcp.MethodToolsCall,
		mcp.MethodResourcesList, mcp.MethodResourceTemplatesList, mcp.MethodResourcesRead, mcp.MethodResourcesSubscribe,
		mcp.MethodResourcesUnsubscribe, mcp.MethodPromptsList, mcp.MethodPromptsGet, mcp.MethodComplete,
		mcp.MethodTasksGet, mcp.MethodTasksResult, mcp.MethodTasksList, mcp.MethodTasksCancel, mcp.MethodTasksUpdate,
	} {
		names[name] = name
	}
	return names
}()

// internMethod returns the name of a method, without allocating for those that are known.
func internMethod(method []byte) string {
	if string(method) == mcp.MethodToolsCall { // nearly all are
		return mcp.MethodToolsCall
	}
	if name, ok := methodNames[string(method)]; ok {
		return name
	}
	return string(method)
}

// offers reports whether the server has what the method is about. A method of a capability that is not declared does not exist.
func (s *Server) offers(method []byte) bool {
	switch string(method) {
	case mcp.MethodToolsList, mcp.MethodToolsCall:
		return s.advertises(toolsChanged)
	case mcp.MethodResourcesList, mcp.MethodResourceTemplatesList, mcp.MethodResourcesRead, mcp.MethodResourcesSubscribe, mcp.MethodResourcesUnsubscribe:
		return s.advertises(resourcesChanged)
	case mcp.MethodPromptsList, mcp.MethodPromptsGet:
		return s.advertises(promptsChanged)
	case mcp.MethodComplete:
		return s.hasCompleter.Load()
	case mcp.MethodTasksGet, mcp.MethodTasksResult, mcp.MethodTasksList, mcp.MethodTasksCancel, mcp.MethodTasksUpdate:
		return s.tasks != nil
	}
	return true
}

// advertises reports whether the capabilities name the primitive whose changes c are: something of the kind is or was registered, or will be.
func (s *Server) advertises(c listChange) bool {
	switch c {
	case toolsChanged:
		return s.advertised&c != 0 || s.tools.hadItems.Load()
	case promptsChanged:
		return s.advertised&c != 0 || s.prompts.hadItems.Load()
	}
	return s.advertised&c != 0 || s.resources.hadItems.Load() || s.templates.hadItems.Load()
}
