package interop

import (
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"mcpwire/capture"
	"mcpwire/check"
)

// A bridged is a server behind a bridge. downstream records the traffic between clients and the
// bridge, upstream between the bridge and the server.
type bridged struct {
	downstream, upstream *witnessed
	capture              string // the bridge's file
}

// newBridge puts a bridge before a server that has yet to be started, or that listens. Clients
// reach it over HTTP if web is set, else they start it.
func newBridge(t *testing.T, upstream *witnessed, web bool, flags ...string) *bridged {
	t.Helper()
	b := &bridged{upstream: upstream, capture: filepath.Join(t.TempDir(), "bridge"+capture.Suffix)}
	path := ""
	if web {
		path = webPath
	}
	b.downstream = before(t, upstream, path, slices.Concat([]string{serverCommand[0], "bridge", "--capture", b.capture, "--redact", "off"}, flags)...)
	return b
}

// before is the bridge that a command is, without the server, to which it is put. path is where
// clients find it over HTTP; empty has them start it.
func before(t *testing.T, upstream *witnessed, path string, command ...string) *witnessed {
	t.Helper()
	if path != "" {
		command = append(command, "--listen", "127.0.0.1:0")
	}
	if upstream.web != nil {
		command = append(command, upstream.web.url())
	} else {
		name, args := upstream.command()
		command = append(append(command, "--", name), args...)
	}
	if path == "" {
		return newCommand(t, command...)
	}
	return newWebProgram(t, path, keeperVerb, command...)
}

// checkGone checks that neither the bridge nor what it has started is left, once the client is
// done.
func (b *bridged) checkGone() {
	b.downstream.t.Helper()
	b.downstream.checkGone()
	b.upstream.checkGone()
}

// recording returns the recording of the bridge.
func (b *bridged) recording() (events []*capture.Event) {
	t := b.downstream.t
	t.Helper()
	r, err := capture.Open(b.capture, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	for e, err := range r.Events() {
		if err != nil {
			t.Fatal(err)
		}
		if e.Kind == capture.KindGap {
			t.Errorf("the capture has a gap: %+v", e.Gap)
		}
		events = append(events, e.Clone())
	}
	return events
}

// modernCalls reports whether the tools of one side were called in the modern era.
func modernCalls(events []*capture.Event, side capture.Side) bool {
	return slices.ContainsFunc(events, func(e *capture.Event) bool {
		if e.Kind != capture.KindMessage || e.Dir != capture.ToServer || e.Side != side {
			return false
		}
		m, err := parse(e.Data)
		return err == nil && m.Method == "tools/call" && m.params.Meta.Revision == modern
	})
}

// findings are what package check finds in one side of the recording, errors and warnings, but for
// what the tour provokes, and what is known of a peer.
func (b *bridged) findings(side capture.Side, peer string) (found []violation) {
	t := b.downstream.t
	t.Helper()
	r, err := capture.Open(b.capture, &capture.ReaderOptions{Side: side})
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	for f, err := range check.Run(r, nil) {
		if err != nil {
			t.Fatal(err)
		}
		if f.Rule.Severity > check.Info && !isOf(f, peer) {
			found = append(found, violation{checkRule(f.Rule.ID), fmt.Sprintf("event %d, session %d, %s, id %s, %s%s: %s", f.Event, f.Session, f.Dir, f.ID, f.Method, f.Pointer, f.Message)})
		}
	}
	return found
}

// logRecording shows a session that was bridged.
func logRecording(t *testing.T, events []*capture.Event) {
	t.Helper()
	for _, e := range events {
		switch e.Kind {
		case capture.KindMessage:
			t.Logf("%d %s %s: %.600s", e.N, e.Side, e.Dir, e.Data)
		case capture.KindTranslate:
			t.Logf("%d: %d → %v %s", e.N, e.Translation.Of, e.Translation.To, e.Translation.Rule)
		default:
			t.Logf("%d %s %s %s", e.N, e.Side, e.Kind, strings.TrimSpace(string(e.Data)))
		}
	}
}
