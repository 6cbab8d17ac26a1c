package auth

import (
	"fmt"
	"log/slog"
)

// redacted is what is printed of a [Secret].
const redacted = "[redacted]"

// A Secret is a token, a password or a key. However it is printed, logged or marshalled, "[redacted]" is all that comes out, also from within structs
// that are printed with %+v or %#v. [Secret.Reveal] is the way to its text. The zero Secret is empty.
type Secret struct {
	// A pointer, because fmt prints unexported fields without asking their methods.
	text *string
}

// NewSecret returns a Secret with this text.
func NewSecret(text string) Secret {
	if text == "" {
		return Secret{}
	}
	return Secret{&text}
}

// Reveal returns the text.
func (s Secret) Reveal() string {
	if s.text == nil {
		return ""
	}
	return *s.text
}

// IsZero reports whether the Secret is empty.
func (s Secret) IsZero() bool { return s.text == nil }

// String implements [fmt.Stringer] and does not tell the text.
func (s Secret) String() string {
	if s.IsZero() {
		return ""
	}
	return redacted
}

// Format implements [fmt.Formatter] and does not tell the text, whatever the verb.
func (s Secret) Format(f fmt.State, _ rune) { fmt.Fprint(f, s.String()) }

// MarshalText implements [encoding.TextMarshaler] and does not tell the text. To store secrets there is [EncodeRecord].
func (s Secret) MarshalText() ([]byte, error) { return []byte(s.String()), nil }

// LogValue implements [slog.LogValuer] and does not tell the text.
func (s Secret) LogValue() slog.Value { return slog.StringValue(s.String()) }
