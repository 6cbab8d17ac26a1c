package server

// The messages of a Bus, for its tests.
type (
	Event     = event
	EventKind = eventKind
)

const (
	EventTools       = eventTools
	EventResources   = eventResources
	EventPrompts     = eventPrompts
	EventView        = eventView
	EventResource    = eventResource
	EventTask        = eventTask
	EventElicitation = eventElicitation
)
