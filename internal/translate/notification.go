package translate

import "mcpwire/mcp"

// isProtocolNotification reports whether a notification is one of the protocol's, in any revision. Those that a translator has no other use for are not for that peer to
// say, and the other one could be deceived by them; those that are not the protocol's pass.
func isProtocolNotification(method string) bool {
	switch method {
	case mcp.NotificationInitialized, mcp.NotificationCancelled, mcp.NotificationProgress, mcp.NotificationMessage, mcp.NotificationToolsChanged,
		mcp.NotificationResourcesChanged, mcp.NotificationPromptsChanged, mcp.NotificationResourceUpdated, mcp.NotificationRootsChanged,
		mcp.NotificationAcknowledged, mcp.NotificationElicitationComplete, mcp.NotificationTaskStatus, mcp.NotificationTasks:
		return true
	}
	return false
}
