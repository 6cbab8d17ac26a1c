package tap

import (
	"fmt"
	"os"
	"testing"

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
