package main

import (
	_ "embed"
	"maps"
	"slices"
	"strings"
)

// shapeAdditionsText has, by revision, what no schema has: definitions of the tasks extension where messages differ from the Go types, which
// additions.json is for, and members of _meta.
//
//go:embed shapeadditions.json
var shapeAdditionsText []byte

// unshaped are the definitions without a shape, with the reason. A star stands for any end or beginning.
var unshaped = map[string]string{
	"JSONRPC*":                   "an envelope, which package jsonrpc reads",
	"Client*":                    "a union of all messages; the method chooses, see shapeKeep",
	"Server*":                    "a union of all messages; the method chooses, see shapeKeep",
	"*ResultResponse":            "an envelope around a result",
	"*Error":                     "an error object; its data has a shape, see shapeErrors",
	"*Request":                   "an envelope around params; see shapeInputs",
	"*Notification":              "an envelope around params",
	"JSONValue":                  "any value: the schema leaves out null and fractions, which JSON has",
	"JSONObject":                 "any object",
	"JSONArray":                  "any array",
	"ResultType":                 "a string",
	"TaskAugmentedRequestParams": "a base of params that repeat it",
	"InputResponseRequestParams": "a base of params that repeat it",
	"ResourceRequestParams":      "a base of params that repeat it",
	"PaginatedResult":            "a base of results that repeat it",
	"CacheableResult":            "a base of results that repeat it",
	"BaseMetadata":               "a base of types that repeat it",
	"Annotated":                  "a base of types that repeat it",
	"Icons":                      "a base of types that repeat it",
	"ResourceContents":           "a base of types that repeat it",
}

// shapeKeep are definitions that patterns of unshaped match, but have a shape.
var shapeKeep = map[string]bool{"ClientCapabilities": true, "ServerCapabilities": true, "InputRequest": true, "Error": true}

// shapeInputs are envelopes that are part of an input_required result.
var shapeInputs = []string{"CreateMessageRequest", "ElicitRequest", "ListRootsRequest"}

// shapeParams are the names of params, where an older revision has them in place and a later one has made a union of them.
var shapeParams = map[string]string{"ElicitRequest": "ElicitRequestFormParams"}

// fractionFields are members for which schema.json asks for an integer and schema.ts for a number.
var fractionFields = []string{"ElicitResult.content"}

// shapeExtension are the messages of the tasks extension: method, what it is, params, result and who sends it.
var shapeExtension = []shapeMethod{
	{name: "tasks/get", params: "GetTaskRequestParams", result: "GetTaskResult", client: true},
	{name: "tasks/cancel", params: "CancelTaskRequestParams", result: "EmptyResult", client: true},
	{name: "tasks/update", params: "UpdateTaskRequestParams", result: "EmptyResult", client: true},
	{name: "notifications/tasks", params: "DetailedTask", notification: true, server: true},
}

// A shapeMethod is what the extension says of a method.
type shapeMethod struct {
	name, params, result         string
	notification, client, server bool
}

// unshapedReason returns why a definition has no shape, or "".
func unshapedReason(name string) (pattern, reason string) {
	if shapeKeep[name] {
		return "", ""
	}
	for _, pattern := range slices.Sorted(maps.Keys(unshaped)) {
		before, after, star := strings.Cut(pattern, "*")
		if pattern == name || star && strings.HasPrefix(name, before) && strings.HasSuffix(name, after) && len(name) >= len(before)+len(after) {
			return pattern, unshaped[pattern]
		}
	}
	return "", ""
}
