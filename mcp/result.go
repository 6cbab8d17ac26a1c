package mcp

// Kinds of result, as resultType has them since 2026-07-28. A result without a type is complete.
const (
	ResultTypeComplete      = "complete"
	ResultTypeInputRequired = "input_required" // an InputRequiredResult
	ResultTypeTask          = "task"           // an ExtensionCreateTaskResult, of the tasks extension
)

// Modes of elicitation. No mode is a form.
const (
	ElicitModeForm = "form"
	ElicitModeURL  = "url" // since 2025-11-25
)
