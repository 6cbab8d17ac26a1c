package cli

import (
	"io"
	"sync"

	"github.com/rogpeppe/go-internal/testscript"
)

// tapping holds a function for each script that stops the tap it started last.
var tapping sync.Map

// cmdTapping starts "mcpwire tap --listen 127.0.0.1:0", waits until it listens, and sets TAP:
// tapping FLAGS... URL. It ends with the script, or by untap.
func cmdTapping(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) == 0 {
		ts.Fatalf("usage: tapping FLAGS... URL")
	}
	stop := listen(ts, "TAP", append([]string{"tap", "--listen", "127.0.0.1:0"}, args...)...)
	tapping.Store(ts, stop)
	ts.Defer(func() { stop() })
}

// cmdUntap stops the tap, checks that its exit status is 0, and prints what it wrote to standard
// error: untap
func cmdUntap(ts *testscript.TestScript, neg bool, args []string) {
	stop, ok := tapping.Load(ts)
	if neg || len(args) > 0 || !ok {
		ts.Fatalf("usage: untap, after tapping")
	}
	log, err := stop.(func() (string, error))()
	ts.Check(err)
	io.WriteString(ts.Stdout(), log)
}
