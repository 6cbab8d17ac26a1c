package interop

import (
	"os"
	"path/filepath"
	"testing"

	"mcpwire/capture"
)

// A guestProxy is a bridge or a gateway between guests and servers. There may be several processes
// of it, since a client may start a second one for the probe.
type guestProxy struct {
	bridged
	home string // MCPWIRE_HOME, with the captures
}

// newGuestBridge returns a bridge in front of a server. path is the path of the bridge over HTTP;
// if it is empty, clients start the bridge.
func newGuestBridge(t *testing.T, path string, upstream *recordedServer) *guestProxy {
	t.Helper()
	p := &guestProxy{bridged: bridged{upstream: upstream}, home: t.TempDir()}
	command := []string{"env", "MCPWIRE_HOME=" + p.home, serverCommand[0], "bridge", "--record", "--redact", "off"}
	if path != "" {
		command = append(command, "--sse")
	}
	p.downstream = newProxy(t, upstream, path, command...)
	return p
}

// audit checks both sides and the captures against the rules, and that all processes have exited
// with status 0. The client must have ended. processes is the number of processes of the bridge,
// and of the server, that a client over stdio starts.
func (p *guestProxy) audit(processes int, known ...deviation) {
	t := p.upstream.t
	t.Helper()
	p.checkGone()
	if t.Failed() {
		return
	}
	servers, bridges := processes, processes
	if p.upstream.web != nil {
		servers = 1
	}
	if p.downstream.web != nil {
		bridges = 1
	}
	p.downstream.audit(bridges, known...)
	p.upstream.audit(servers)
	files, err := filepath.Glob(filepath.Join(p.home, "captures", "*"+capture.Suffix))
	if err != nil || len(files) != bridges {
		t.Errorf("captures = %q, %v, want %d", files, err, bridges)
	}
	for _, file := range files {
		p.checkCapture(file)
	}
}

// checkCapture checks the capture of one process against the rules.
func (p *guestProxy) checkCapture(file string) {
	t := p.upstream.t
	t.Helper()
	p.capture = file
	events := p.events()
	messages, translations := map[capture.Side]int{}, 0
	for _, e := range events {
		switch e.Kind {
		case capture.KindMessage:
			messages[e.Side]++
		case capture.KindTranslate:
			translations++
		}
	}
	if messages[capture.Downstream] == 0 || messages[capture.Upstream] == 0 || translations == 0 {
		t.Errorf("capture has messages %v and %d translations, want both sides and translations", messages, translations)
	}
	var e knownDeviations
	for _, side := range []capture.Side{capture.Downstream, capture.Upstream} {
		if e.report(t, "the capture", p.findings(side, "")) {
			logRecording(t, events)
		}
	}
}

// skipWithoutBridge skips a test if the server under test is not mcpwire.
func skipWithoutBridge(t *testing.T) {
	t.Helper()
	if os.Getenv("INTEROP_SERVER") != "" {
		t.Skip("INTEROP_SERVER is not mcpwire")
	}
}
