package interop

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// pythonDir has the programs on the Python SDK. Its virtual environment venv has the packages of
// requirements.txt.
const pythonDir = "py"

// python returns the interpreter with the SDK. If it is not installed, it skips the test; in CI it
// fails the test.
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

// missing skips a test because peers in a language are not installed. In CI it fails the test
// unless INTEROP_WITHOUT lists the language, whose registry CI cannot reach.
func missing(t *testing.T, language, format string, args ...any) {
	t.Helper()
	without := strings.Fields(os.Getenv("INTEROP_WITHOUT"))
	if os.Getenv("CI") == "true" && !slices.Contains(without, language) {
		t.Fatalf(format, args...)
	}
	t.Skipf(format, args...)
}
