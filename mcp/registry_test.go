package mcp

import (
	"go/ast"
	"go/parser"
	"go/token"
	"path/filepath"
	"testing"
)

// A codec is the interface of all types of this package, by pointer.
type codec interface {
	appendRevision(dst []byte, r Revision) []byte
	MarshalJSON() ([]byte, error)
	UnmarshalJSON(data []byte) error
}

// codecs has a constructor for each type. It is in a test so that programs link only the types that
// they use.
var codecs = map[string]func() codec{
	"Annotations":                                 func() codec { return new(Annotations) },
	"AudioContent":                                func() codec { return new(AudioContent) },
	"CallToolRequestParams":                       func() codec { return new(CallToolRequestParams) },
	"CallToolResult":                              func() codec { return new(CallToolResult) },
	"CancelTaskRequestParams":                     func() codec { return new(CancelTaskRequestParams) },
	"CancelTaskResult":                            func() codec { return new(CancelTaskResult) },
	"CancelledNotificationParams":                 func() codec { return new(CancelledNotificationParams) },
	"ClientCapabilities":                          func() codec { return new(ClientCapabilities) },
	"ClientTaskRequests":                          func() codec { return new(ClientTaskRequests) },
	"ClientTasksCapability":                       func() codec { return new(ClientTasksCapability) },
	"CompleteArgument":                            func() codec { return new(CompleteArgument) },
	"CompleteContext":                             func() codec { return new(CompleteContext) },
	"CompleteRequestParams":                       func() codec { return new(CompleteRequestParams) },
	"CompleteResult":                              func() codec { return new(CompleteResult) },
	"Completion":                                  func() codec { return new(Completion) },
	"CreateMessageRequestParams":                  func() codec { return new(CreateMessageRequestParams) },
	"CreateMessageResult":                         func() codec { return new(CreateMessageResult) },
	"CreateTaskResult":                            func() codec { return new(CreateTaskResult) },
	"DetailedTask":                                func() codec { return new(DetailedTask) },
	"DiscoverResult":                              func() codec { return new(DiscoverResult) },
	"ElicitRequestParams":                         func() codec { return new(ElicitRequestParams) },
	"ElicitResult":                                func() codec { return new(ElicitResult) },
	"ElicitationCapability":                       func() codec { return new(ElicitationCapability) },
	"ElicitationCompleteNotificationParams":       func() codec { return new(ElicitationCompleteNotificationParams) },
	"ElicitationTaskRequests":                     func() codec { return new(ElicitationTaskRequests) },
	"EmbeddedResource":                            func() codec { return new(EmbeddedResource) },
	"ExtensionCreateTaskResult":                   func() codec { return new(ExtensionCreateTaskResult) },
	"ExtensionTask":                               func() codec { return new(ExtensionTask) },
	"GetPromptRequestParams":                      func() codec { return new(GetPromptRequestParams) },
	"GetPromptResult":                             func() codec { return new(GetPromptResult) },
	"GetTaskPayloadRequestParams":                 func() codec { return new(GetTaskPayloadRequestParams) },
	"GetTaskPayloadResult":                        func() codec { return new(GetTaskPayloadResult) },
	"GetTaskRequestParams":                        func() codec { return new(GetTaskRequestParams) },
	"GetTaskResult":                               func() codec { return new(GetTaskResult) },
	"Icon":                                        func() codec { return new(Icon) },
	"ImageContent":                                func() codec { return new(ImageContent) },
	"Implementation":                              func() codec { return new(Implementation) },
	"InitializeRequestParams":                     func() codec { return new(InitializeRequestParams) },
	"InitializeResult":                            func() codec { return new(InitializeResult) },
	"InputRequest":                                func() codec { return new(InputRequest) },
	"InputRequiredResult":                         func() codec { return new(InputRequiredResult) },
	"ListPromptsResult":                           func() codec { return new(ListPromptsResult) },
	"ListResourceTemplatesResult":                 func() codec { return new(ListResourceTemplatesResult) },
	"ListResourcesResult":                         func() codec { return new(ListResourcesResult) },
	"ListRootsResult":                             func() codec { return new(ListRootsResult) },
	"ListTasksResult":                             func() codec { return new(ListTasksResult) },
	"ListToolsResult":                             func() codec { return new(ListToolsResult) },
	"LoggingMessageNotificationParams":            func() codec { return new(LoggingMessageNotificationParams) },
	"MissingRequiredClientCapabilityData":         func() codec { return new(MissingRequiredClientCapabilityData) },
	"ModelHint":                                   func() codec { return new(ModelHint) },
	"ModelPreferences":                            func() codec { return new(ModelPreferences) },
	"NotificationParams":                          func() codec { return new(NotificationParams) },
	"PaginatedRequestParams":                      func() codec { return new(PaginatedRequestParams) },
	"ProgressNotificationParams":                  func() codec { return new(ProgressNotificationParams) },
	"Prompt":                                      func() codec { return new(Prompt) },
	"PromptArgument":                              func() codec { return new(PromptArgument) },
	"PromptMessage":                               func() codec { return new(PromptMessage) },
	"PromptReference":                             func() codec { return new(PromptReference) },
	"PromptsCapability":                           func() codec { return new(PromptsCapability) },
	"ReadResourceRequestParams":                   func() codec { return new(ReadResourceRequestParams) },
	"ReadResourceResult":                          func() codec { return new(ReadResourceResult) },
	"RequestParams":                               func() codec { return new(RequestParams) },
	"Resource":                                    func() codec { return new(Resource) },
	"ResourceContents":                            func() codec { return new(ResourceContents) },
	"ResourceLink":                                func() codec { return new(ResourceLink) },
	"ResourceTemplate":                            func() codec { return new(ResourceTemplate) },
	"ResourceTemplateReference":                   func() codec { return new(ResourceTemplateReference) },
	"ResourceUpdatedNotificationParams":           func() codec { return new(ResourceUpdatedNotificationParams) },
	"ResourcesCapability":                         func() codec { return new(ResourcesCapability) },
	"Result":                                      func() codec { return new(Result) },
	"Root":                                        func() codec { return new(Root) },
	"RootsCapability":                             func() codec { return new(RootsCapability) },
	"SamplingCapability":                          func() codec { return new(SamplingCapability) },
	"SamplingMessage":                             func() codec { return new(SamplingMessage) },
	"SamplingTaskRequests":                        func() codec { return new(SamplingTaskRequests) },
	"ServerCapabilities":                          func() codec { return new(ServerCapabilities) },
	"ServerTaskRequests":                          func() codec { return new(ServerTaskRequests) },
	"ServerTasksCapability":                       func() codec { return new(ServerTasksCapability) },
	"SetLevelRequestParams":                       func() codec { return new(SetLevelRequestParams) },
	"SubscribeRequestParams":                      func() codec { return new(SubscribeRequestParams) },
	"SubscriptionFilter":                          func() codec { return new(SubscriptionFilter) },
	"SubscriptionsAcknowledgedNotificationParams": func() codec { return new(SubscriptionsAcknowledgedNotificationParams) },
	"SubscriptionsListenRequestParams":            func() codec { return new(SubscriptionsListenRequestParams) },
	"SubscriptionsListenResult":                   func() codec { return new(SubscriptionsListenResult) },
	"Task":                                        func() codec { return new(Task) },
	"TaskMetadata":                                func() codec { return new(TaskMetadata) },
	"TaskStatusNotificationParams":                func() codec { return new(TaskStatusNotificationParams) },
	"TextContent":                                 func() codec { return new(TextContent) },
	"Tool":                                        func() codec { return new(Tool) },
	"ToolAnnotations":                             func() codec { return new(ToolAnnotations) },
	"ToolChoice":                                  func() codec { return new(ToolChoice) },
	"ToolExecution":                               func() codec { return new(ToolExecution) },
	"ToolResultContent":                           func() codec { return new(ToolResultContent) },
	"ToolTaskRequests":                            func() codec { return new(ToolTaskRequests) },
	"ToolUseContent":                              func() codec { return new(ToolUseContent) },
	"ToolsCapability":                             func() codec { return new(ToolsCapability) },
	"URLElicitationRequiredData":                  func() codec { return new(URLElicitationRequiredData) },
	"UnsubscribeRequestParams":                    func() codec { return new(UnsubscribeRequestParams) },
	"UnsupportedProtocolVersionData":              func() codec { return new(UnsupportedProtocolVersionData) },
	"UpdateTaskRequestParams":                     func() codec { return new(UpdateTaskRequestParams) },
}

// TestCodecs shows that the table codecs has every type.
func TestCodecs(t *testing.T) {
	paths, err := filepath.Glob("gen_*.go")
	if err != nil || len(paths) == 0 {
		t.Fatal(paths, err)
	}
	for _, path := range paths {
		f, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.SkipObjectResolution)
		if err != nil {
			t.Fatal(err)
		}
		for n := range ast.Preorder(f) {
			if spec, ok := n.(*ast.TypeSpec); ok {
				if _, ok := spec.Type.(*ast.StructType); ok && codecs[spec.Name.Name] == nil {
					t.Errorf("%s is not in codecs", spec.Name.Name)
				}
			}
		}
	}
}
