package interop

import (
	"os/exec"
	"path/filepath"
	"testing"
)

// newCluster returns a server of three processes, behind a proxy that sends each request to the
// next process.
func newCluster(t *testing.T) *recordedServer {
	t.Helper()
	dir := t.TempDir()
	harness, node := filepath.Join(dir, "harness"), filepath.Join(dir, "node")
	for binary, pkg := range map[string]string{harness: "./tools/harness", node: "./cmd/mcpwire-node"} {
		build := exec.Command("go", "build", "-o", binary, pkg)
		build.Dir = filepath.Join("..", "..")
		if out, err := build.CombinedOutput(); err != nil {
			t.Fatalf("build %s: %v: %s", pkg, err, out)
		}
	}
	return newWeb(t, webPath, harness, "-serve", "-plain", "-program", node, "-dir", filepath.Join(dir, "nodes"))
}

// TestCluster runs clients of other SDKs against a server of three processes, in both eras.
func TestCluster(t *testing.T) {
	s := newCluster(t)
	for _, revision := range []string{latestLegacy, modern} {
		t.Run("Go "+revision, func(t *testing.T) {
			checkReport(t, walk(t.Context(), connectGoSDK(t.Context(), t, s, revision)), revision)
		})
	}
	t.Run("TypeScript 1", func(t *testing.T) {
		checkReport(t, runScript(t, s, "v1.mjs", nil, true), latestLegacy)
	})
	t.Run("TypeScript 2, legacy", func(t *testing.T) {
		checkReport(t, runScript(t, s, "v2.mjs", "legacy", true), latestLegacy)
	})
	t.Run("TypeScript 2, modern", func(t *testing.T) {
		checkReport(t, runScript(t, s, "v2.mjs", map[string]string{"pin": modern}, false), modern)
	})
	// There is no audit: it identifies modern clients by their process, and these share one.
}
