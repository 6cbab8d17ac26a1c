package interop

import (
	"encoding/json"
	"fmt"
	"testing"
)

// message is what the audit reads of a JSON-RPC message. The identifiers keep
// their JSON text.
type message struct {
	JSONRPC string          `json:"jsonrpc"`
	ID      json.RawMessage `json:"id"`
	Method  string          `json:"method"`
	Params  struct {
		Meta struct {
			Revision string          `json:"io.modelcontextprotocol/protocolVersion"`
			Token    json.RawMessage `json:"progressToken"`
		} `json:"_meta"`
		Arguments struct {
			Steps float64 `json:"steps"`
		} `json:"arguments"`
		Token     json.RawMessage `json:"progressToken"`
		Progress  float64         `json:"progress"`
		RequestID json.RawMessage `json:"requestId"`
	} `json:"params"`
	Result *struct {
		ResultType string `json:"resultType"`
	} `json:"result"`
	Error *struct {
		Code    int    `json:"code"`
		Message string `json:"message"`
	} `json:"error"`
}

// pending is a request of the host that is not answered yet.
type pending struct {
	method    string
	modern    bool
	cancelled bool
	token     string
	progress  float64
	steps     float64 // the progress that it ends with
}

// auditor follows one transcript.
type auditor struct {
	errorf func(format string, args ...any)
	open   map[string]*pending // by the JSON text of the id
}

// audit checks that the host started as many processes as it should have, and
// each transcript by itself. It is called when the host is done.
func (s *server) audit(processes int) {
	s.t.Helper()
	all := s.transcripts()
	if len(all) != processes {
		s.t.Errorf("audit: the host started %d servers, want %d", len(all), processes)
	}
	for i, events := range all {
		before := s.t.Failed()
		auditTranscript(s.t, fmt.Sprintf("audit of server %d", i+1), events)
		if s.t.Failed() && !before {
			logTranscript(s.t, events)
		}
	}
}

// auditTranscript holds what a server wrote against what it was sent: every
// request answered once, unless cancelled; nothing else on standard output;
// progress only for open requests, and upward; the shape of results as the
// era has it; and an exit with status 0 as soon as the input ends.
func auditTranscript(t *testing.T, name string, events []event) {
	t.Helper()
	a := &auditor{
		errorf: func(format string, args ...any) { t.Helper(); t.Errorf(name+": "+format, args...) },
		open:   map[string]*pending{},
	}
	var last event
	asked := false // to end, one way or the other
	for _, e := range events {
		switch e.Kind {
		case toServer:
			a.sent(e.Line)
		case toHost:
			a.received(e.Line)
		case inputEnds, signalled:
			asked = true
		case incomplete:
			a.errorf("%s", e.Text)
		}
		last = e
	}
	if last.Kind != exited || last.Code != 0 || !asked {
		a.errorf("the server did not exit with status 0 after its input ended; last event: %+v", last)
	}
	for id, p := range a.open {
		if !p.cancelled {
			a.errorf("%s with id %s was never answered", p.method, id)
		}
	}
}

// sent takes note of what the host wrote.
func (a *auditor) sent(line []byte) {
	var m message
	if err := json.Unmarshal(line, &m); err != nil {
		a.errorf("the host wrote %q: %v", line, err)
		return
	}
	switch {
	case m.Method == "notifications/cancelled":
		if p := a.open[string(m.Params.RequestID)]; p != nil {
			p.cancelled = true
		}
	case m.Method != "" && m.ID != nil:
		a.open[string(m.ID)] = &pending{
			method: m.Method,
			modern: m.Params.Meta.Revision != "",
			token:  string(m.Params.Meta.Token),
			steps:  m.Params.Arguments.Steps,
		}
	}
}

// received checks what the server wrote.
func (a *auditor) received(line []byte) {
	var m message
	if err := json.Unmarshal(line, &m); err != nil || m.JSONRPC != "2.0" {
		a.errorf("the server wrote no JSON-RPC message: %q (%v)", line, err)
		return
	}
	if m.Method != "" {
		a.notified(m, line)
		return
	}
	p := a.open[string(m.ID)]
	if p == nil {
		a.errorf("a response to nothing: %s", line)
		return
	}
	delete(a.open, string(m.ID))
	if p.cancelled {
		a.errorf("a response to %s after it was cancelled: %s", p.method, line)
	}
	if p.token != "" && m.Result != nil && p.progress != p.steps {
		a.errorf("a response after %v of %v steps of progress: %s", p.progress, p.steps, line)
	}
	if (m.Result == nil) == (m.Error == nil) {
		a.errorf("neither or both of result and error: %s", line)
	}
	if m.Error != nil && (m.Error.Code == 0 || m.Error.Message == "") {
		a.errorf("an error without code or message: %s", line)
	}
	if m.Result != nil && p.modern != (m.Result.ResultType != "") {
		a.errorf("resultType belongs into results of the modern era, and only there: %s", line)
	}
}

func (a *auditor) notified(m message, line []byte) {
	if m.ID != nil {
		a.errorf("the server made a request: %s", line)
	}
	if m.Method != "notifications/progress" {
		return
	}
	for _, p := range a.open {
		if p.token != "" && p.token == string(m.Params.Token) {
			if m.Params.Progress <= p.progress {
				a.errorf("progress did not increase from %v: %s", p.progress, line)
			}
			p.progress = m.Params.Progress
			return
		}
	}
	a.errorf("progress for no open request: %s", line)
}

// logTranscript shows a session whose audit failed.
func logTranscript(t *testing.T, events []event) {
	t.Helper()
	for _, e := range events {
		switch e.Kind {
		case toServer, toHost:
			t.Logf("%s: %.1000s", e.Kind, e.Line)
		default:
			t.Logf("%s %s %d", e.Kind, e.Text, e.Code)
		}
	}
}
