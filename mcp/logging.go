package mcp

import (
	"fmt"
	"strings"
)

// A LoggingLevel is the severity of a notifications/message, by RFC 5424. Greater is more severe. The specification deprecates logging since
// 2026-07-28; it still works.
type LoggingLevel uint8

// The levels. The zero LoggingLevel is none.
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

// ParseLoggingLevel parses a name as it stands on the wire.
func ParseLoggingLevel(name string) (l LoggingLevel, ok bool) {
	for i := 1; i < len(levelNames); i++ {
		if levelNames[i] == name {
			return LoggingLevel(i), true
		}
	}
	return LevelNone, false
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
