package stdio

import (
	"fmt"
	"os"
	"runtime"
	"strings"
	"testing"
	"time"

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

// testTimeout is how long tests wait for events that should happen at once.
const testTimeout = 20 * time.Second

// within fails the test if f does not return within testTimeout.
func within(t *testing.T, what string, f func()) {
	t.Helper()
	done := make(chan struct{})
	go func() {
		defer close(done)
		f()
	}()
	select {
	case <-done:
	case <-time.After(testTimeout):
		buf := make([]byte, 1<<20)
		t.Fatalf("%s takes too long\n%s", what, buf[:runtime.Stack(buf, true)])
	}
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
