package stdio

import (
	"fmt"
	"os"
	"strings"
	"testing"

	"go.uber.org/goleak"
)

// helperVar makes the test binary behave as a child process of a test: it names an entry of
// helpers.
const helperVar = "STDIO_TEST_HELPER"

// helpers are the child processes. Other files add their own.
var helpers = map[string]func(){}

func TestMain(m *testing.M) {
	if name := os.Getenv(helperVar); name != "" {
		helper, ok := helpers[name]
		if !ok {
			fmt.Fprintf(os.Stderr, "no helper %q\n", name)
			os.Exit(99)
		}
		helper()
		os.Exit(0)
	}
	goleak.VerifyTestMain(m)
}

// helperCommand returns the Cmd of a helper.
func helperCommand(t *testing.T, name string, args ...string) *Cmd {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	c := Command(self, args...)
	// With the race detector a program sleeps for a second when it exits.
	c.Env = []string{helperVar + "=" + name, "GORACE=atexit_sleep_ms=0"}
	return c
}

func wantContains(t *testing.T, what, got string, wants ...string) {
	t.Helper()
	for _, want := range wants {
		if !strings.Contains(got, want) {
			t.Errorf("%s is\n%s\nwhich does not contain %q", what, got, want)
		}
	}
}
