package auth

import "fmt"

// A Secret is a token, a password or a key. When it is printed, logged or marshaled, also in
// structs with %+v or %#v, the result is "[redacted]". [Secret.Reveal] returns its text. The zero
// Secret is empty.
type Secret struct {
	// text is a pointer, because fmt prints unexported fields without calling their methods.
	text *string
}

// NewSecret returns a Secret with the given text.
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

// Format implements [fmt.Formatter] without revealing the text, for every verb.
func (s Secret) Format(f fmt.State, _ rune) {
	if !s.IsZero() {
		fmt.Fprint(f, "[redacted]")
	}
}

// MarshalText implements [encoding.TextMarshaler], also for package slog, without revealing the
// text. Use [Secret.Reveal] to store a Secret.
func (s Secret) MarshalText() ([]byte, error) { return fmt.Append(nil, s), nil }
