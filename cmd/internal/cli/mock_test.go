package cli

import (
	"errors"
	"io"
	"os/exec"
	"strconv"
	"sync"

	"github.com/rogpeppe/go-internal/testscript"
)

// mocking holds a function for each script that stops the mock it started last.
var mocking sync.Map

// cmdMocking starts "mcpwire mock --http 127.0.0.1:0", waits until it listens, and sets MOCK:
// mocking FILE FLAGS... It ends with the script, or by unmock.
func cmdMocking(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) == 0 {
		ts.Fatalf("usage: mocking FILE FLAGS...")
	}
	stop := listen(ts, "MOCK", append([]string{"mock", "--http", "127.0.0.1:0"}, args...)...)
	mocking.Store(ts, stop)
	ts.Defer(func() { stop() })
}

// cmdUnmock stops the mock, checks its exit status, and prints what it wrote to standard error:
// unmock STATUS
func cmdUnmock(ts *testscript.TestScript, neg bool, args []string) {
	stop, ok := mocking.Load(ts)
	if neg || len(args) != 1 || !ok {
		ts.Fatalf("usage: unmock STATUS, after mocking")
	}
	want, err := strconv.Atoi(args[0])
	ts.Check(err)
	log, err := stop.(func() (string, error))()
	got := 0
	if exit, failed := errors.AsType[*exec.ExitError](err); failed {
		got = exit.ExitCode()
	} else {
		ts.Check(err)
	}
	if got != want {
		ts.Fatalf("exit status %d, want %d: %s", got, want, log)
	}
	io.WriteString(ts.Stdout(), log)
}
