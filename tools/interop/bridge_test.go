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

// A bridged is a server behind a bridge. downstream has the traffic between clients and the bridge,
// upstream the traffic between the bridge and the server.
type bridged struct {
	downstream, upstream *recordedServer
	capture              string // the path of the bridge's capture
}

// newBridge returns a bridge in front of a server that is not started yet, or that listens. Clients
// connect to it over HTTP if web is set, else they start it.
func newBridge(t *testing.T, upstream *recordedServer, web bool, flags ...string) *bridged {
	t.Helper()
	b := &bridged{upstream: upstream, capture: filepath.Join(t.TempDir(), "bridge"+capture.Suffix)}
	path := ""
	if web {
		path = webPath
	}
	b.downstream = newProxy(t, upstream, path, slices.Concat([]string{serverCommand[0], "bridge", "--capture", b.capture, "--redact", "off"}, flags)...)
	return b
}

// newProxy returns a proxy in front of a server. command is the proxy's command without the server.
// path is the path of the proxy over HTTP; if it is empty, clients start the proxy.
func newProxy(t *testing.T, upstream *recordedServer, path string, command ...string) *recordedServer {
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
	return newWebProgram(t, path, termVerb, command...)
}

// checkGone checks that the bridge and its servers have exited. The client must have ended.
func (b *bridged) checkGone() {
	b.downstream.t.Helper()
	b.downstream.checkGone()
	b.upstream.checkGone()
}

// events returns the events of the bridge's capture.
func (b *bridged) events() (events []*capture.Event) {
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
			t.Errorf("capture has a gap: %+v", e.Gap)
		}
		events = append(events, e.Clone())
	}
	return events
}

// modernCalls reports whether a side has modern calls of tools.
func modernCalls(events []*capture.Event, side capture.Side) bool {
	return slices.ContainsFunc(events, func(e *capture.Event) bool {
		if e.Kind != capture.KindMessage || e.Dir != capture.ToServer || e.Side != side {
			return false
		}
		m, err := parse(e.Data)
		return err == nil && m.Method == "tools/call" && m.params.Meta.Revision == modern
	})
}

// findings returns the errors and warnings of package check for one side of the capture, except
// those that the tour causes and the known ones of the peer.
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
		if f.Rule.Severity > check.Info && !isOfPeer(f, peer) {
			found = append(found, violation{checkRule(f.Rule.ID), fmt.Sprintf("event %d, session %d, %s, id %s, %s%s: %s", f.Event, f.Session, f.Dir, f.ID, f.Method, f.Pointer, f.Message)})
		}
	}
	return found
}

// logRecording logs the events of a capture.
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
