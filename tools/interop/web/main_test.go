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

// missing skips a test because a program or package is not installed. In CI it fails the test.
func missing(t *testing.T, format string, args ...any) {
	t.Helper()
	if os.Getenv("CI") == "true" {
		t.Fatalf(format, args...)
	}
	t.Skipf(format, args...)
}
