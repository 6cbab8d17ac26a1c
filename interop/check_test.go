package interop

import (
	"bytes"
	"context"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"

	"mcpwire/capture"
	"mcpwire/check"
)

// Package check, which was written independently of the audit here, also checks the traffic of
// hosts and servers. A finding that only one of the two reports is a fault of the other.

// checkRule returns the audit's rule that corresponds to a rule of package check.
func checkRule(id string) rule { return rule("check: " + id) }

// recorded writes a capture and returns what package check finds in it, errors and warnings.
func recorded(t *testing.T, transport capture.Transport, record func(w *capture.Writer)) (found []violation) {
	t.Helper()
	var file bytes.Buffer
	w := capture.NewWriter(&file, &capture.Options{Tool: "interop", Transport: transport, Redact: &capture.Redaction{Off: true}})
	record(w)
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	for f, err := range check.Run(capture.NewReader(&file, nil), nil) {
		if err != nil {
			t.Fatal(err)
		}
		if f.Rule.Severity > check.Info && !isKnown(f) {
			found = append(found, violation{checkRule(f.Rule.ID), fmt.Sprintf("event %d, %s, id %s, %s%s: %s", f.Event, f.Dir, f.ID, f.Method, f.Pointer, f.Message)})
		}
	}
	return found
}

// A knownFinding is a finding that is right by the specification, about a peer that is not ours; or
// one that the tests here provoke.
type knownFinding struct {
	id, has string
	dir     capture.Dir
	of      []string // the peers whose doing it is; none if it is provoked
	why     string
}

const (
	ofGoSDK       = "go-sdk"
	ofMCPGo       = "mcp-go"
	ofTypeScript1 = "TypeScript SDK 1"
	ofTypeScript2 = "TypeScript SDK 2"
	ofPython      = "Python SDK"
	ofFastMCP     = "FastMCP"
	ofRust        = "Rust SDK"
	ofJava        = "Java SDK"
)

var knownFindings = []knownFinding{
	{"prompts/argument-missing", "", capture.ToServer, nil, "the tour leaves an argument out, to see what comes of it"},
	{"tools/arguments", "", capture.ToServer, nil, "the tour sends wrong arguments"},
	{"tools/unknown", "no_such_tool", capture.ToServer, nil, "the tour calls a tool that there is not"},
	{"pagination/unknown-cursor", "no such cursor", capture.ToServer, nil, "the tour makes a cursor up"},
	{"stdio/exit-pending", "status 3", "", nil, "the tour calls a tool that crashes the server"},

	{"mrtr/undeclared", "", capture.ToClient, []string{ofGoSDK, ofMCPGo}, "the client's capabilities are left for servers to look at"},
	{"capability/client-undeclared", "", capture.ToClient, []string{ofGoSDK, ofMCPGo, ofTypeScript1}, "the client's capabilities are left for servers to look at"},
	{"jsonrpc/error-id-null", "", capture.ToClient, []string{ofTypeScript1, ofTypeScript2}, "an HTTP request is refused with an error whose id is null, in every revision"},
	{"shape/not-in-revision", "/content/", capture.ToClient, []string{ofGoSDK, ofMCPGo, ofTypeScript1, ofTypeScript2, ofPython, ofRust, ofJava}, "all kinds of content are sent whatever the revision"},
	{"tools/unknown-as-result", "no_such_tool", capture.ToClient, []string{ofTypeScript1, ofFastMCP}, "a call of an unknown tool got a result"},
	{"tasks/begin", "input_required", capture.ToClient, []string{ofTypeScript1}, "tasks may begin with a question"},
	{"shape/missing-member", `"ttl"`, capture.ToClient, []string{ofMCPGo}, "the time to live of a task is left out if there is none, where null is right"},
	{"progress/after-completion", "", capture.ToClient, []string{ofMCPGo, ofGoSDK}, "notifications are sent on a way of their own, so some come behind the result"},
	{"logging/not-asked", "", capture.ToClient, []string{ofMCPGo}, "notifications are sent on a way of their own, so some come behind the result"},
	{"listen/no-id", "", capture.ToClient, []string{ofMCPGo}, "changes are told without the subscription's id on standard output"},
	{"http/event-id-twice", `the id "0"`, capture.ToClient, []string{ofRust}, "the standing stream begins with the id of the first event that it will have"},
	{"http/event-id-twice", "", capture.ToClient, []string{ofJava}, "the id of each event is that of the session"},
	{"jsonrpc/not-a-message", "jsonRpcError", capture.ToClient, []string{ofJava}, "an HTTP request is refused with its exception as JSON, which is no message"},
	{"cache/question-kept", "", capture.ToClient, []string{ofGoSDK}, "caching hints are put into a question that a resource asks"},
}

// isKnown reports whether a finding is known.
func isKnown(f check.Finding) bool {
	return slices.ContainsFunc(knownFindings, func(k knownFinding) bool {
		return k.covers(f)
	})
}

func (k *knownFinding) covers(f check.Finding) bool {
	return k.id == f.Rule.ID && k.dir == f.Dir && strings.Contains(f.Pointer+" "+f.Message, k.has)
}

// isOf reports whether a finding is provoked, or known of the peer.
func isOf(f check.Finding, peer string) bool {
	return slices.ContainsFunc(knownFindings, func(k knownFinding) bool {
		return k.covers(f) && (k.of == nil || slices.Contains(k.of, peer))
	})
}

// checkTranscript checks what one process read and wrote.
func checkTranscript(t *testing.T, events []event) []violation {
	t.Helper()
	return recorded(t, "stdio", func(w *capture.Writer) {
		for _, e := range events {
			switch e.Kind {
			case started:
				w.Record(&capture.Event{Kind: capture.KindStart, Start: &capture.Start{Command: []string{"server"}, PID: e.Code}})
			case toServer:
				w.Record(lineEvent(capture.ToServer, e.Line))
			case toHost:
				w.Record(lineEvent(capture.ToClient, e.Line))
			case inputEnds:
				w.Record(&capture.Event{Kind: capture.KindEOF, Dir: capture.ToServer})
			case signalled:
				w.Record(&capture.Event{Kind: capture.KindNote, Data: []byte("signal " + e.Text)})
			case exited:
				w.Record(&capture.Event{Kind: capture.KindExit, Exit: &capture.Exit{Code: e.Code}})
			}
		}
	})
}

func lineEvent(dir capture.Dir, line []byte) *capture.Event {
	e := &capture.Event{Kind: capture.KindMessage, Dir: dir, Framing: capture.FramingLF}
	var ok bool
	if e.Data, ok = bytes.CutSuffix(line, []byte("\n")); !ok {
		e.Framing = capture.FramingNone
	} else if e.Data, ok = bytes.CutSuffix(e.Data, []byte("\r")); ok {
		e.Framing = capture.FramingCRLF
	}
	return e
}

// checkMoments checks what was said over HTTP.
func checkMoments(t *testing.T, moments []moment) []violation {
	t.Helper()
	number := map[*exchange]uint64{}
	return recorded(t, "http", func(w *capture.Writer) {
		for _, m := range moments {
			if m.kind == requested {
				number[m.x] = uint64(len(number) + 1)
			}
			for _, e := range momentEvents(m) {
				e.Exchange = number[m.x]
				w.Record(e)
			}
		}
	})
}

func momentEvents(m moment) []*capture.Event {
	switch m.kind {
	case requested:
		events := []*capture.Event{{Kind: capture.KindRequest, Dir: capture.ToServer, Request: &capture.Request{Method: m.x.method, URL: m.x.uri, Proto: "HTTP/1.1", Headers: headers(m.x.header)}}}
		if len(m.x.body) > 0 {
			events = append(events, &capture.Event{Kind: capture.KindMessage, Dir: capture.ToServer, Data: m.x.body})
		}
		return events
	case responded:
		return []*capture.Event{{Kind: capture.KindResponse, Dir: capture.ToClient, Response: &capture.Response{Status: m.x.status, Proto: "HTTP/1.1", Headers: headers(m.x.response)}}}
	case spoke:
		return []*capture.Event{saidEvent(m.x, m.said)}
	case left:
		return []*capture.Event{{Kind: capture.KindEnd, Data: []byte(context.Canceled.Error())}}
	case broke:
		return []*capture.Event{{Kind: capture.KindEnd, Data: []byte("the server broke it off")}}
	}
	return []*capture.Event{{Kind: capture.KindEnd}}
}

func saidEvent(x *exchange, s said) *capture.Event {
	e := &capture.Event{Kind: capture.KindMessage, Dir: capture.ToClient, Data: s.data}
	if !x.streams() {
		return e
	}
	e.SSE = &capture.SSE{Event: s.name, ID: s.id, HasID: s.hasID, HasRetry: s.retry, HasData: s.data != nil}
	if len(s.data) == 0 || s.name != "" && s.name != "message" {
		e.Kind = capture.KindSSE
	}
	return e
}

// headers returns the fields of a header in a fixed order.
func headers(h http.Header) (fields []capture.Header) {
	for name, values := range h {
		for _, v := range values {
			fields = append(fields, capture.Header{Name: name, Value: v})
		}
	}
	slices.SortFunc(fields, func(a, b capture.Header) int {
		return bytes.Compare([]byte(a.Name+"\x00"+a.Value), []byte(b.Name+"\x00"+b.Value))
	})
	return fields
}
