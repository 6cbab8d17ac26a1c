package mcp

import (
	"fmt"
	"slices"
	"strings"
)

// A LoggingLevel is the severity of a notifications/message (RFC 5424). Greater is more severe. The
// specification deprecates logging since 2026-07-28; it still works.
type LoggingLevel uint8

// The levels. The zero LoggingLevel is not a level.
const (
	LevelNone LoggingLevel = iota
	LevelDebug
	LevelInfo
	LevelNotice
	LevelWarning
	LevelError
	LevelCritical
	LevelAlert
	LevelEmergency
)

var levelNames = [...]string{"", "debug", "info", "notice", "warning", "error", "critical", "alert", "emergency"}

// String returns the level's name on the wire.
func (l LoggingLevel) String() string {
	if int(l) >= len(levelNames) {
		return ""
	}
	return levelNames[l]
}

// ParseLoggingLevel parses a name from the wire.
func ParseLoggingLevel(name string) (l LoggingLevel, ok bool) {
	i := slices.Index(levelNames[1:], name) + 1
	return LoggingLevel(i), i > 0
}

// MarshalText implements [encoding.TextMarshaler].
func (l LoggingLevel) MarshalText() ([]byte, error) {
	if l.String() == "" {
		return nil, fmt.Errorf("no such logging level: %d", uint8(l))
	}
	return []byte(l.String()), nil
}

// UnmarshalText implements [encoding.TextUnmarshaler].
func (l *LoggingLevel) UnmarshalText(text []byte) error {
	v, ok := ParseLoggingLevel(string(text))
	if !ok {
		return fmt.Errorf("unknown logging level %.40q (known: %s)", text, strings.Join(levelNames[1:], ", "))
	}
	*l = v
	return nil
}

// A ResultType says which type a result has, since 2026-07-28. A result without it is complete.
// Extensions may add values.
type ResultType string

// The types of results.
const (
	ResultTypeComplete      ResultType = "complete"
	ResultTypeInputRequired ResultType = "input_required" // an InputRequiredResult
	ResultTypeTask          ResultType = "task"           // an ExtensionCreateTaskResult
)

// An ElicitMode is the way in which a client asks its user. None means a form.
type ElicitMode string

// The modes of elicitation.
const (
	ElicitModeForm ElicitMode = "form"
	ElicitModeURL  ElicitMode = "url" // since 2025-11-25
)

// Tasks have two designs, which do not mix.
//
// The core protocol of 2025-11-25 has [Task], [TaskMetadata], [CreateTaskResult], [GetTaskResult]
// and related types: the caller asks for a task, the result contains it in a member, and
// tasks/result returns the result of the original request.
//
// The extension of 2026-07-28 has [ExtensionTask], [ExtensionCreateTaskResult], [DetailedTask] and
// [UpdateTaskRequestParams]: the server decides, the result is the task, and tasks/get returns a
// [DetailedTask] that contains the result. Both designs have [GetTaskRequestParams] and
// [CancelTaskRequestParams]; [Result] answers tasks/update and tasks/cancel.

// ExtensionTasks is the name of the tasks extension in [ClientCapabilities] and
// [ServerCapabilities]. (https://github.com/modelcontextprotocol/ext-tasks)
const ExtensionTasks = "io.modelcontextprotocol/tasks"
