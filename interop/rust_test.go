package interop

import (
	"os"
	"path/filepath"
	"testing"
)

// rustDir holds the peers on the Rust SDK: one program, which cargo builds.
const rustDir = "rust"

// rust returns the program. Where it is not built, the test is skipped; in CI
// that is a failure.
func rust(t *testing.T) string {
	t.Helper()
	path, err := filepath.Abs(filepath.Join(rustDir, "target", "debug", "peer"))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(path); err != nil {
		missing(t, "rust", "the peers on the Rust SDK are not built: run 'cargo build' in interop/%s", rustDir)
	}
	return path
}
