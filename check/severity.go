package check

import "fmt"

// A Severity says how bad a finding is. Greater is worse.
type Severity int

// The severities.
const (
	Info    Severity = iota // worth knowing, nothing is broken
	Warning                 // what the specification says SHOULD be otherwise, or what many peers stumble over
	Error                   // what the specification says MUST be otherwise
)

var severityNames = [...]string{"info", "warning", "error"}

// String returns "info", "warning" or "error".
func (s Severity) String() string {
	if s < Info || s > Error {
		return fmt.Sprintf("Severity(%d)", int(s))
	}
	return severityNames[s]
}

// MarshalText implements [encoding.TextMarshaler].
func (s Severity) MarshalText() ([]byte, error) { return []byte(s.String()), nil }

// UnmarshalText implements [encoding.TextUnmarshaler]. It takes what String returns.
func (s *Severity) UnmarshalText(text []byte) error {
	for i, name := range severityNames {
		if string(text) == name {
			*s = Severity(i)
			return nil
		}
	}
	return fmt.Errorf("unknown severity %.20q (known: info, warning, error)", text)
}
