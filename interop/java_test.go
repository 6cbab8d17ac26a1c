package interop

import (
	"os"
	"os/exec"
	"path/filepath"
	"testing"
)

// javaDir holds the peers on the Java SDK, which Maven builds.
const javaDir = "java"

// java returns the command that runs them. Where they are not built, the test is
// skipped; in CI that is a failure.
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
		missing(t, "java", "there is no Java: %v", err)
	}
	// A process lives for seconds: compiling its code well would not pay.
	return []string{program, "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-cp", jar + string(os.PathListSeparator) + filepath.Join(target, "lib", "*"), "Peer"}
}
