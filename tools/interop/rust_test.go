package interop

import (
	"os"
	"path/filepath"
	"testing"
)

// rustDir has the peers on the Rust SDK: one program, which cargo builds.
const rustDir = "rust"

// rust returns the program. If it is not built, it skips the test; in CI it fails the test.
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
