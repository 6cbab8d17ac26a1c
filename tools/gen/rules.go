package main

import (
	_ "embed"
	"fmt"
	"regexp"
	"strings"
)

// The rules below add what the schemas do not say, or replace what does not make a good Go type.
// Each rule must be used, or the run fails.

// skipped lists the definitions without a Go type, with the reason.
var skipped = map[string]string{
	"Annotated":                   "a base: its field is in those that extend it",
	"BaseMetadata":                "a base: its fields are in those that extend it",
	"Icons":                       "a base: its field is in those that extend it",
	"PaginatedRequest":            "a base: its params are PaginatedRequestParams",
	"PaginatedResult":             "a base: its fields are in the results of lists",
	"CacheableResult":             "a base: its fields are in the results that extend it",
	"ResourceRequestParams":       "a base: its fields are in those that extend it",
	"InputResponseRequestParams":  "a base: its fields are in those that extend it",
	"TaskAugmentedRequestParams":  "a base: its fields are in those that extend it",
	"Request":                     "the envelope is jsonrpc.Message",
	"Notification":                "the envelope is jsonrpc.Message",
	"JSONRPC*":                    "the envelope is jsonrpc.Message",
	"*ResultResponse":             "the envelope is jsonrpc.Message; what is in it has a type",
	"ClientRequest":               "a union of envelopes: the method tells them apart",
	"ClientNotification":          "a union of envelopes: the method tells them apart",
	"ClientResult":                "a union that anything matches: the request's method tells results apart",
	"ServerRequest":               "a union of envelopes: the method tells them apart",
	"ServerNotification":          "a union of envelopes: the method tells them apart",
	"ServerResult":                "a union that anything matches: the request's method tells results apart",
	"EmptyResult":                 "another name of Result",
	"Error":                       "jsonrpc.Error",
	"ParseError":                  "jsonrpc.CodeParseError",
	"InvalidRequestError":         "jsonrpc.CodeInvalidRequest",
	"MethodNotFoundError":         "jsonrpc.CodeMethodNotFound",
	"InvalidParamsError":          "jsonrpc.CodeInvalidParams",
	"InternalError":               "jsonrpc.CodeInternalError",
	"Cursor":                      "a string",
	"ResultType":                  "written by hand: extensions add values",
	"RequestId":                   "jsonrpc.ID",
	"ProgressToken":               "jsonrpc.ID",
	"JSONValue":                   "json.RawMessage",
	"JSONObject":                  "json.RawMessage",
	"JSONArray":                   "json.RawMessage",
	"*MetaObject":                 "json.RawMessage: a _meta is open, and its keys are the Meta constants",
	"RelatedTaskMetadata":         "json.RawMessage: the value of a key of _meta",
	"InputRequests":               "map[string]InputRequest",
	"InputResponses":              "map[string]json.RawMessage",
	"InputResponse":               "json.RawMessage: the method of the InputRequest tells what it is",
	"LoggingLevel":                "written by hand: its values have an order",
	"ContentBlock":                "written by hand: an interface",
	"SamplingMessageContentBlock": "written by hand: ContentBlock",
	"ResourceContents":            "written by hand: text or binary",
	"TextResourceContents":        "written by hand: ResourceContents",
	"BlobResourceContents":        "written by hand: ResourceContents",
	"PrimitiveSchemaDefinition":   "part of requestedSchema, which is JSON text",
	"StringSchema":                "part of requestedSchema, which is JSON text",
	"NumberSchema":                "part of requestedSchema, which is JSON text",
	"BooleanSchema":               "part of requestedSchema, which is JSON text",
	"*EnumSchema":                 "part of requestedSchema, which is JSON text",
}

// renamed lists the definitions that are, or are part of, a type with another name. A union with
// that name is skipped.
var renamed = map[string]string{
	"ResourceReference":       "ResourceTemplateReference",
	"ElicitRequestFormParams": "ElicitRequestParams",
	"ElicitRequestURLParams":  "ElicitRequestParams",
}

// enums lists the definitions and properties with a fixed set of values, with the prefix of the
// constants. It is the name of their type too, unless enumTypes has another.
var enums = map[string]string{
	"Role":       "Role",
	"TaskStatus": "TaskStatus",

	"CreateMessageRequestParams.includeContext": "IncludeContext",
	"ElicitResult.action":                       "ElicitAction",
	"Icon.theme":                                "Theme",
	"ListToolsResult.cacheScope":                "CacheScope",
	"ToolChoice.mode":                           "ToolChoice",
	"ToolExecution.taskSupport":                 "TaskSupport",
}

// enumTypes lists the types of constants whose prefix names something else.
var enumTypes = map[string]string{"ToolChoice": "ToolChoiceMode"}

// sameEnums lists the properties that share the values of another enum.
var sameEnums = map[string]string{
	"DiscoverResult.cacheScope":              "ListToolsResult.cacheScope",
	"ListPromptsResult.cacheScope":           "ListToolsResult.cacheScope",
	"ListResourceTemplatesResult.cacheScope": "ListToolsResult.cacheScope",
	"ListResourcesResult.cacheScope":         "ListToolsResult.cacheScope",
	"ReadResourceResult.cacheScope":          "ListToolsResult.cacheScope",
}

// refKinds lists the Go types of definitions that are not separate structs.
var refKinds = map[string]kind{
	"RequestId":                           {form: formID},
	"ProgressToken":                       {form: formID},
	"LoggingLevel":                        {form: formLevel},
	"Role":                                {form: formString, elem: "Role"},
	"TaskStatus":                          {form: formString, elem: "TaskStatus"},
	"MetaObject":                          {form: formObject},
	"RequestMetaObject":                   {form: formObject},
	"ResultMetaObject":                    {form: formObject},
	"NotificationMetaObject":              {form: formObject},
	"SubscriptionsListenResultMetaObject": {form: formObject},
	"JSONObject":                          {form: formObject},
	"ContentBlock":                        {form: formBlock},
	"InputRequests":                       {form: formMap, elem: "InputRequest"},
	"InputResponses":                      {form: formRawMap},
	"Error":                               {form: formError},
}

// kinds lists the Go types of properties for which the schema implies another type or does not
// determine it.
var kinds = map[string]kind{
	"Tool.inputSchema":                    {form: formObject, text: `{"type":"object"}`},
	"Tool.outputSchema":                   {form: formObject, revisionTest: "isObjectSchema"},
	"ElicitRequestParams.requestedSchema": {form: formObject},
	"ElicitRequestParams.mode":            {form: formString, elem: "ElicitMode"},
	"CreateMessageResult.stopReason":      {form: formString, elem: "StopReason"},
	"CreateMessageRequestParams.messages": {form: formMessages},
	"CreateMessageResult.content":         {form: formSampling},
	"SamplingMessage.content":             {form: formSampling},
	"InputRequiredResult.resultType":      {form: formConst, text: `"input_required"`},
	"ToolAnnotations.readOnlyHint":        {form: formBool, pointer: true},
	"ToolAnnotations.destructiveHint":     {form: formBool, pointer: true},
	"ToolAnnotations.idempotentHint":      {form: formBool, pointer: true},
	"ToolAnnotations.openWorldHint":       {form: formBool, pointer: true},
}

// stringTypes lists the types of strings by the name of their property.
var stringTypes = map[string]string{"resultType": "ResultType"}

// pointerFields lists the optional properties for which empty differs from absent.
var pointerFields = map[string]bool{"cursor": true, "nextCursor": true, "requestState": true}

// optionalNames lists the properties that may always be absent, even if a schema requires them:
// results of older revisions lack them, and their absence has a defined meaning.
var optionalNames = map[string]bool{"resultType": true, "ttlMs": true, "cacheScope": true, "_meta": true}

// lenientArrays lists the required arrays for which absent and null mean empty, as in other
// implementations.
var lenientArrays = map[string]bool{"CallToolResult.content": true}

// allRevisions lists the properties that are sent in all revisions, although only later ones define
// them.
var allRevisions = map[string]string{
	"ClientCapabilities.extensions": "capabilities are open in all revisions, and hosts declare extensions in the handshake",
	"ServerCapabilities.extensions": "capabilities are open in all revisions, and hosts declare extensions in the handshake",
}

// inlineTypes names the types that the schemas define inline.
var inlineTypes = map[string]string{
	"*.annotations":                  "Annotations",
	"ClientCapabilities.roots":       "RootsCapability",
	"ClientCapabilities.sampling":    "SamplingCapability",
	"ClientCapabilities.elicitation": "ElicitationCapability",
	"ClientCapabilities.tasks":       "ClientTasksCapability",
	"ClientTasksCapability.requests": "ClientTaskRequests",
	"ClientTaskRequests.elicitation": "ElicitationTaskRequests",
	"ClientTaskRequests.sampling":    "SamplingTaskRequests",
	"ServerCapabilities.prompts":     "PromptsCapability",
	"ServerCapabilities.resources":   "ResourcesCapability",
	"ServerCapabilities.tools":       "ToolsCapability",
	"ServerCapabilities.tasks":       "ServerTasksCapability",
	"ServerTasksCapability.requests": "ServerTaskRequests",
	"ServerTaskRequests.tools":       "ToolTaskRequests",
	"CompleteRequestParams.argument": "CompleteArgument",
	"CompleteRequestParams.context":  "CompleteContext",
	"CompleteResult.completion":      "Completion",
}

// addedFields lists the fields that no schema has.
var addedFields = map[string]addedField{
	"SubscriptionFilter.taskIds": {kind{form: formStrings}, "the tasks extension"},
}

type addedField struct {
	kind kind
	why  string
}

// valueTypes lists the types that implement an interface by value: ContentBlock if true, Reference
// if false.
var valueTypes = map[string]bool{
	"TextContent": true, "ImageContent": true, "AudioContent": true, "ResourceLink": true, "EmbeddedResource": true,
	"ToolUseContent": true, "ToolResultContent": true,
	"PromptReference": false, "ResourceTemplateReference": false,
}

//go:embed docs.txt
var docsText string

// docs holds the descriptions of types, fields and constants: lines "key: text" of docs.txt.
var docs = func() map[string]string {
	all := map[string]string{}
	for _, m := range regexp.MustCompile(`(?m)^([A-Za-z][\w./*-]*): (.+)$`).FindAllStringSubmatch(docsText, -1) {
		all[m[1]] = m[2]
	}
	return all
}()

var docsUsed = map[string]bool{}

// doc returns a description, or "".
func doc(key string) string {
	docsUsed[key] = true
	return docs[key]
}

// checkDocs returns an error for a description of an unknown subject, for a type without a
// description, and for that of a field that does not begin with the field's name.
func checkDocs(m *model) error {
	for key := range docs {
		if !docsUsed[key] {
			return fmt.Errorf("docs.txt: %q describes nothing", key)
		}
	}
	for name, t := range m.types {
		if docs[name] == "" {
			return fmt.Errorf("docs.txt: type %s has no description", name)
		}
		for _, f := range t.sorted() {
			if text := docs[name+"."+f.name]; text != "" && !strings.HasPrefix(text, goName(f.name)+" ") {
				return fmt.Errorf("docs.txt: %s.%s: the description does not begin with %s", name, f.name, goName(f.name))
			}
		}
	}
	return nil
}
