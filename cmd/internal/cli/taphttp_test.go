package cli

import (
	"context"
	"io"
	"path/filepath"
	"sync"

	"github.com/rogpeppe/go-internal/testscript"

	livesock "mcpwire/cmd/internal/trace/live"
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

// cmdDecides connects to the only tap as a viewer, and decides in the background about the next
// message that it holds: decides ACTION [FILE]. FILE has the message for edit and answer.
func cmdDecides(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) == 0 || len(args) > 2 {
		ts.Fatalf("usage: decides ACTION [FILE]")
	}
	d := &livesock.Decision{Action: livesock.Action(args[0])}
	if len(args) == 2 {
		d.Data = ts.ReadFile(args[1])
	}
	paths, err := livesock.List(filepath.Join(ts.Getenv("MCPWIRE_HOME"), "live"))
	ts.Check(err)
	if len(paths) != 1 {
		ts.Fatalf("decides: %d taps", len(paths))
	}
	ctx, cancel := context.WithCancel(context.Background())
	conn, err := livesock.Dial(ctx, paths[0])
	ts.Check(err)
	ts.Check(conn.WatchHeld())
	done := make(chan error, 1)
	go func() { done <- decideNext(conn, d) }()
	ts.Defer(func() {
		cancel()
		err := <-done
		conn.Close()
		ts.Check(err)
	})
}

// decideNext waits for a held message and decides about it.
func decideNext(conn *livesock.Conn, d *livesock.Decision) error {
	for {
		state, err := conn.ReadHeld()
		if err != nil {
			return err
		}
		if len(state.Messages) > 0 {
			d.ID = state.Messages[0].ID
			return conn.Decide(d)
		}
	}
}
