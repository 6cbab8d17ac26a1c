package main

// files lists the generated files with their types, in order.
var files = []struct {
	name  string
	types []string
}{
	{"base", []string{"RequestParams", "NotificationParams", "PaginatedRequestParams", "Result"}},
	{"lifecycle", []string{"Implementation", "Icon", "InitializeRequestParams", "InitializeResult", "DiscoverResult"}},
	{"clientcapabilities", []string{"ClientCapabilities", "RootsCapability", "SamplingCapability", "ElicitationCapability",
		"ClientTasksCapability", "ClientTaskRequests", "ElicitationTaskRequests", "SamplingTaskRequests"}},
	{"servercapabilities", []string{"ServerCapabilities", "PromptsCapability", "ResourcesCapability", "ToolsCapability",
		"ServerTasksCapability", "ServerTaskRequests", "ToolTaskRequests"}},
	{"tools", []string{"Tool", "ToolAnnotations", "ToolExecution", "ListToolsResult", "CallToolRequestParams", "CallToolResult"}},
	{"resources", []string{"Resource", "ResourceTemplate", "ListResourcesResult", "ListResourceTemplatesResult",
		"ReadResourceRequestParams", "ReadResourceResult", "SubscribeRequestParams", "UnsubscribeRequestParams", "ResourceUpdatedNotificationParams"}},
	{"prompts", []string{"Prompt", "PromptArgument", "PromptMessage", "ListPromptsResult", "GetPromptRequestParams", "GetPromptResult"}},
	{"completion", []string{"CompleteRequestParams", "CompleteArgument", "CompleteContext", "PromptReference", "ResourceTemplateReference",
		"CompleteResult", "Completion"}},
	{"content", []string{"Annotations", "TextContent", "ImageContent", "AudioContent", "ResourceLink", "EmbeddedResource", "ToolUseContent", "ToolResultContent"}},
	{"sampling", []string{"CreateMessageRequestParams", "CreateMessageResult", "SamplingMessage", "ModelPreferences", "ModelHint", "ToolChoice"}},
	{"elicitation", []string{"ElicitRequestParams", "ElicitResult", "ElicitationCompleteNotificationParams"}},
	{"roots", []string{"ListRootsResult", "Root"}},
	{"logging", []string{"SetLevelRequestParams", "LoggingMessageNotificationParams"}},
	{"progress", []string{"ProgressNotificationParams", "CancelledNotificationParams"}},
	{"subscriptions", []string{"SubscriptionsListenRequestParams", "SubscriptionFilter", "SubscriptionsAcknowledgedNotificationParams", "SubscriptionsListenResult"}},
	{"inputrequired", []string{"InputRequiredResult", "InputRequest"}},
	{"tasks", []string{"Task", "TaskMetadata", "CreateTaskResult", "GetTaskRequestParams", "GetTaskResult",
		"GetTaskPayloadRequestParams", "GetTaskPayloadResult", "CancelTaskRequestParams", "CancelTaskResult", "ListTasksResult", "TaskStatusNotificationParams"}},
	{"taskextension", []string{"ExtensionTask", "ExtensionCreateTaskResult", "DetailedTask", "UpdateTaskRequestParams"}},
	{"errors", []string{"MissingRequiredClientCapabilityData", "UnsupportedProtocolVersionData", "URLElicitationRequiredData"}},
}

const metaPrefix = "io.modelcontextprotocol/"

// firstProps and lastProps list the properties that come first and last in a type, in this order.
// The others are between them, sorted by name. _meta is last.
var (
	firstProps = []string{"type", "taskId", "id", "toolUseId", "role", "uri", "uriTemplate", "ref", "src", "name", "version", "title", "method", "params", "mode", "message",
		"description", "websiteUrl", "level", "logger", "text", "data", "mimeType", "size", "sizes", "theme", "inputSchema", "outputSchema", "action", "content", "structuredContent", "isError",
		"audience", "priority", "lastModified", "readOnlyHint", "destructiveHint", "idempotentHint", "openWorldHint",
		"progressToken", "progress", "total", "protocolVersion", "supportedVersions", "status", "statusMessage", "createdAt", "lastUpdatedAt", "ttl", "messages", "model", "requestId",
		"const", "enum", "enumNames", "values", "argument", "value", "requestedSchema", "input", "completion"}
	lastProps = []string{"icons", "annotations", "inputResponses", "inputRequests", "requestState", "instructions", "nextCursor", "task", "ttlMs", "pollInterval", "pollIntervalMs",
		"result", "error", "cacheScope", "resultType", "_meta"}
	// orders lists the order of properties in types that deviate.
	orders = map[string][]string{
		"Tool":                           {"name", "title", "description", "inputSchema", "outputSchema", "annotations", "icons", "execution", "_meta"},
		"ProgressNotificationParams":     {"progressToken", "progress", "total", "message", "_meta"},
		"Completion":                     {"values", "total", "hasMore"},
		"CreateMessageRequestParams":     {"messages", "maxTokens", "systemPrompt", "modelPreferences", "temperature", "stopSequences", "includeContext", "tools", "toolChoice", "metadata", "task", "_meta"},
		"ElicitRequestParams":            {"mode", "message", "requestedSchema", "url", "elicitationId", "task", "_meta"},
		"UnsupportedProtocolVersionData": {"supported", "requested"},
	}
)
