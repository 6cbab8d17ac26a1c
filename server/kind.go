package server

import "mcpwire/mcp"

// A Kind is one of the primitives that a server offers.
type Kind uint8

// The kinds.
const (
	KindTool Kind = iota
	KindResource
	KindResourceTemplate
	KindPrompt
	numKinds
)

var kindNames = [numKinds]string{"tool", "resource", "resource template", "prompt"}

// String returns what the kind is called in messages.
func (k Kind) String() string {
	if k >= numKinds {
		return "unknown"
	}
	return kindNames[k]
}

// A change is something that clients are told of when it changes: lists, of which resources and their templates share one.
type listChange uint8

const (
	toolsChanged listChange = 1 << iota
	resourcesChanged
	promptsChanged
)

// listChanges are all of them, with the notification for each, its member in the filter of subscriptions/listen, and what other servers hear.
var listChanges = [...]struct {
	bit          listChange
	notification string
	member       string
	event        EventKind
}{
	{toolsChanged, mcp.NotificationToolsChanged, "toolsListChanged", ToolsListChanged},
	{resourcesChanged, mcp.NotificationResourcesChanged, "resourcesListChanged", ResourcesListChanged},
	{promptsChanged, mcp.NotificationPromptsChanged, "promptsListChanged", PromptsListChanged},
}

// listChange returns what a change to the registered items of the kind is to clients.
func (k Kind) listChange() listChange {
	switch k {
	case KindTool:
		return toolsChanged
	case KindPrompt:
		return promptsChanged
	}
	return resourcesChanged
}
