package tap

import (
	"fmt"
	"os"
	"runtime"
	"testing"
	"time"

	"go.uber.org/goleak"
)

// helperVar makes the test binary behave as another process of a test: it names an entry of
// helpers.
const helperVar = "TAP_TEST_HELPER"

// helpers are the other processes, which get the arguments and return the exit status. Other files
// add theirs.
var helpers = map[string]func(args []string) int{}

func TestMain(m *testing.M) {
	if name := os.Getenv(helperVar); name != "" {
		helper, ok := helpers[name]
		if !ok {
			fmt.Fprintf(os.Stderr, "no helper %q\n", name)
			os.Exit(99)
		}
		os.Exit(helper(os.Args[1:]))
	}
	os.Setenv("GORACE", "atexit_sleep_ms=0") // it is a second otherwise, for each process
	goleak.VerifyTestMain(m)
}

// testTimeout limits how long tests wait for what should happen at once.
const testTimeout = 20 * time.Second

// within fails the test if f does not return in time.
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

// eventually waits for a condition that nothing announces.
func eventually(t *testing.T, what string, cond func() bool) {
	t.Helper()
	limit := time.Now().Add(testTimeout)
	for !cond() {
		if time.Now().After(limit) {
			t.Fatalf("%s did not come about", what)
		}
		<-time.After(5 * time.Millisecond)
	}
}
