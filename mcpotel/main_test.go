package mcpotel

import (
	"testing"

	"go.uber.org/goleak"

	"mcpwire/internal/json/jsonwire"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// validObject reports whether text is a JSON object without white space around it.
func validObject(text []byte) bool {
	return len(text) > 0 && text[0] == '{' && text[len(text)-1] == '}' && jsonwire.Valid(text, 0) == nil
}
