package interop

import (
	"os"
	"path/filepath"
	"testing"

	"mcpwire/capture"
)

// A passage is a bridge that foreign clients take. There may be several processes
// of it, since a client may start a second one to find out what the server speaks.
type passage struct {
	bridged
	home string // where they record
}

// newPassage puts a bridge before a server. path is where clients find it over
// HTTP; empty has them start it.
func newPassage(t *testing.T, path string, upstream *witnessed) *passage {
	t.Helper()
	p := &passage{bridged: bridged{upstream: upstream}, home: t.TempDir()}
	command := []string{"env", "MCPWIRE_HOME=" + p.home, serverCommand[0], "bridge", "--record", "--redact", "off"}
	if path != "" {
		command = append(command, "--sse")
	}
	p.downstream = before(t, upstream, path, command...)
	return p
}

// audit holds both sides against the rules, and what the bridge has recorded of
// them. The client must have left: so many processes of the bridge have exited
// with status 0, and so have those of the server. Nothing may be left of either.
func (p *passage) audit(processes int, known ...deviation) {
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
		t.Errorf("captures: got %q, %v, want %d", files, err, bridges)
	}
	for _, file := range files {
		p.checkCapture(file)
	}
}

// checkCapture checks the recording of one process against the rules.
func (p *passage) checkCapture(file string) {
	t := p.upstream.t
	t.Helper()
	p.capture = file
	events := p.recording()
	messages, links := map[capture.Side]int{}, 0
	for _, e := range events {
		switch e.Kind {
		case capture.KindMessage:
			messages[e.Side]++
		case capture.KindTranslate:
			links++
		}
	}
	if messages[capture.Downstream] == 0 || messages[capture.Upstream] == 0 || links == 0 {
		t.Errorf("in the capture are %v messages and %d links: those are not both sides", messages, links)
	}
	var e knownDeviations
	for _, side := range []capture.Side{capture.Downstream, capture.Upstream} {
		if e.report(t, "the capture", p.findings(side, "")) {
			logRecording(t, events)
		}
	}
}

// skipWithoutBridge skips a test where the server under test is not ours.
func skipWithoutBridge(t *testing.T) {
	t.Helper()
	if os.Getenv("INTEROP_SERVER") != "" {
		t.Skip("INTEROP_SERVER is no bridge")
	}
}
