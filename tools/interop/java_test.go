package interop

import (
	"os"
	"os/exec"
	"path/filepath"
	"testing"
)

// javaDir has the peers on the Java SDK, which Maven builds.
const javaDir = "java"

// java returns the command that runs the peers. If they are not built, it skips the test; in CI it
// fails the test.
func java(t *testing.T) []string {
	t.Helper()
	target, err := filepath.Abs(filepath.Join(javaDir, "target"))
	if err != nil {
		t.Fatal(err)
	}
	jar := filepath.Join(target, "peer-1.0.0.jar")
	if _, err := os.Stat(jar); err != nil {
		missing(t, "java", "the peers on the Java SDK are not built: run 'mvn package' in interop/%s", javaDir)
	}
	program, err := exec.LookPath("java")
	if err != nil {
		missing(t, "java", "Java is not installed: %v", err)
	}
	// A process runs for seconds, so better compilation would take longer than it saves.
	return []string{program, "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-cp", jar + string(os.PathListSeparator) + filepath.Join(target, "lib", "*"), "Peer"}
}
