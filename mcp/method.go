package mcp

// Methods of requests, by their names on the wire.
const (
	MethodInitialize            = "initialize"           // until 2025-11-25
	MethodPing                  = "ping"                 // until 2025-11-25, in both directions
	MethodSetLevel              = "logging/setLevel"     // until 2025-11-25
	MethodDiscover              = "server/discover"      // since 2026-07-28
	MethodSubscriptionsListen   = "subscriptions/listen" // since 2026-07-28
	MethodToolsList             = "tools/list"
	MethodToolsCall             = "tools/call"
	MethodResourcesList         = "resources/list"
	MethodResourceTemplatesList = "resources/templates/list"
	MethodResourcesRead         = "resources/read"
	MethodResourcesSubscribe    = "resources/subscribe"   // until 2025-11-25
	MethodResourcesUnsubscribe  = "resources/unsubscribe" // until 2025-11-25
	MethodPromptsList           = "prompts/list"
	MethodPromptsGet            = "prompts/get"
	MethodComplete              = "completion/complete"
	MethodTasksGet              = "tasks/get"    // 2025-11-25, both directions; tasks extension
	MethodTasksResult           = "tasks/result" // 2025-11-25 only
	MethodTasksList             = "tasks/list"   // 2025-11-25 only
	MethodTasksCancel           = "tasks/cancel" // 2025-11-25, both directions; tasks extension
	MethodTasksUpdate           = "tasks/update" // tasks extension

	// From server to client: requests until 2025-11-25, input requests within a result since
	// 2026-07-28.
	MethodElicit        = "elicitation/create" // since 2025-06-18
	MethodCreateMessage = "sampling/createMessage"
	MethodRootsList     = "roots/list"
)

// Notifications.
const (
	NotificationInitialized         = "notifications/initialized" // until 2025-11-25
	NotificationCancelled           = "notifications/cancelled"
	NotificationProgress            = "notifications/progress"
	NotificationMessage             = "notifications/message"
	NotificationToolsChanged        = "notifications/tools/list_changed"
	NotificationResourcesChanged    = "notifications/resources/list_changed"
	NotificationPromptsChanged      = "notifications/prompts/list_changed"
	NotificationResourceUpdated     = "notifications/resources/updated"
	NotificationRootsChanged        = "notifications/roots/list_changed"         // until 2025-11-25
	NotificationAcknowledged        = "notifications/subscriptions/acknowledged" // since 2026-07-28
	NotificationElicitationComplete = "notifications/elicitation/complete"       // 2025-11-25 only
	NotificationTaskStatus          = "notifications/tasks/status"               // 2025-11-25 only
	NotificationTasks               = "notifications/tasks"                      // tasks extension
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
	MetaRelatedTask        = "io.modelcontextprotocol/related-task" // 2025-11-25 only
)
