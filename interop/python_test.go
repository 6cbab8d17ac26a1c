package interop

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// pythonDir holds the programs on the Python SDK, and the packages that its
// requirements.txt pins in a virtual environment, venv.
const pythonDir = "py"

// python returns the interpreter that has the SDK. Where it is not installed,
// the test is skipped; in CI that is a failure.
func python(t *testing.T) string {
	t.Helper()
	path, err := filepath.Abs(filepath.Join(pythonDir, "venv", "bin", "python"))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(path); err != nil {
		missing(t, "python", "the Python SDK is not installed: run 'python3 -m venv venv && venv/bin/pip install -r requirements.txt' in interop/%s", pythonDir)
	}
	return path
}

// missing skips a test because peers in a language are not installed. In CI that
// is a failure, unless INTEROP_WITHOUT lists the language: its registry can't be
// reached there.
func missing(t *testing.T, language, format string, args ...any) {
	t.Helper()
	without := strings.Fields(os.Getenv("INTEROP_WITHOUT"))
	if os.Getenv("CI") == "true" && !slices.Contains(without, language) {
		t.Fatalf(format, args...)
	}
	t.Skipf(format, args...)
}
