package server

import "mcpwire/mcp"

// methods are those that the server itself answers, so that their names need not be made anew for each request.
var methods = func() map[string]string {
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

// methodName returns the name of a method, without allocating for those that are known.
func methodName(method []byte) string {
	if string(method) == mcp.MethodToolsCall { // nearly all are
		return mcp.MethodToolsCall
	}
	if name, ok := methods[string(method)]; ok {
		return name
	}
	return string(method)
}

// offers reports whether the server has what the method is about. A method of a capability that is not declared does not exist.
func (s *Server) offers(method []byte) bool {
	switch string(method) {
	case mcp.MethodToolsList, mcp.MethodToolsCall:
		return s.declares(toolsChanged)
	case mcp.MethodResourcesList, mcp.MethodResourceTemplatesList, mcp.MethodResourcesRead, mcp.MethodResourcesSubscribe, mcp.MethodResourcesUnsubscribe:
		return s.declares(resourcesChanged)
	case mcp.MethodPromptsList, mcp.MethodPromptsGet:
		return s.declares(promptsChanged)
	case mcp.MethodComplete:
		return s.completing.Load()
	case mcp.MethodTasksGet, mcp.MethodTasksResult, mcp.MethodTasksList, mcp.MethodTasksCancel, mcp.MethodTasksUpdate:
		return s.tasks != nil
	}
	return true
}

// declares reports whether the capabilities name the primitive whose changes c are: something of the kind is or was registered, or will be.
func (s *Server) declares(c change) bool {
	switch c {
	case toolsChanged:
		return s.declared&c != 0 || s.tools.ever.Load()
	case promptsChanged:
		return s.declared&c != 0 || s.prompts.ever.Load()
	}
	return s.declared&c != 0 || s.resources.ever.Load() || s.templates.ever.Load()
}
