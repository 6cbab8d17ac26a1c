package mcp

// Methods that mcpwire's servers answer or send, by their names on the wire.
const (
	MethodInitialize          = "initialize"           // until 2025-11-25
	MethodPing                = "ping"                 // until 2025-11-25
	MethodSetLevel            = "logging/setLevel"     // until 2025-11-25
	MethodDiscover            = "server/discover"      // since 2026-07-28
	MethodSubscriptionsListen = "subscriptions/listen" // since 2026-07-28
	MethodToolsList           = "tools/list"
	MethodToolsCall           = "tools/call"
)

// Notifications.
const (
	NotificationInitialized  = "notifications/initialized" // until 2025-11-25
	NotificationCancelled    = "notifications/cancelled"
	NotificationProgress     = "notifications/progress"
	NotificationMessage      = "notifications/message"
	NotificationToolsChanged = "notifications/tools/list_changed"
	NotificationAcknowledged = "notifications/subscriptions/acknowledged" // since 2026-07-28
)

// Keys of _meta (https://modelcontextprotocol.io/specification/2026-07-28/basic#_meta).
const (
	MetaProtocolVersion    = "io.modelcontextprotocol/protocolVersion"
	MetaClientCapabilities = "io.modelcontextprotocol/clientCapabilities"
	MetaClientInfo         = "io.modelcontextprotocol/clientInfo"
	MetaLogLevel           = "io.modelcontextprotocol/logLevel"
	MetaServerInfo         = "io.modelcontextprotocol/serverInfo"
	MetaSubscriptionID     = "io.modelcontextprotocol/subscriptionId"
	MetaProgressToken      = "progressToken"
)
