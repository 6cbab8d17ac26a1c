package web

import (
	"os"
	"testing"
)

func TestMain(m *testing.M) {
	code := m.Run()
	issuers.stop()
	browsers.stop()
	drivers.stop()
	built.remove()
	os.Exit(code)
}

// missing ends a test that needs what this machine does not have. In CI that is
// a failure.
func missing(t *testing.T, format string, args ...any) {
	t.Helper()
	if os.Getenv("CI") == "true" {
		t.Fatalf(format, args...)
	}
	t.Skipf(format, args...)
}
