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

// Package check, which is independent of the audit here, also checks the traffic of hosts and
// servers. If only one of them reports a violation, the other has a fault.

// checkRule returns the audit's rule that corresponds to a rule of package check.
func checkRule(id string) rule { return rule("check: " + id) }

// checkRecorded writes a capture and returns the errors and warnings of package check for it.
func checkRecorded(t *testing.T, transport capture.Transport, record func(w *capture.Writer)) (found []violation) {
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

// A knownFinding is a correct finding that a foreign peer or a test causes.
type knownFinding struct {
	id, has string
	dir     capture.Dir
	of      []string // the peers that cause it; nil means the tests
	why     string
}

const (
	goSDKName       = "go-sdk"
	mcpGoName       = "mcp-go"
	typeScript1Name = "TypeScript SDK 1"
	typeScript2Name = "TypeScript SDK 2"
	pythonName      = "Python SDK"
	fastMCPName     = "FastMCP"
	rustName        = "Rust SDK"
	javaName        = "Java SDK"
)

var knownFindings = []knownFinding{
	{"prompts/argument-missing", "", capture.ToServer, nil, "the tour omits a required argument"},
	{"tools/arguments", "", capture.ToServer, nil, "the tour sends wrong arguments"},
	{"tools/unknown", "no_such_tool", capture.ToServer, nil, "the tour calls an unknown tool"},
	{"pagination/unknown-cursor", "no such cursor", capture.ToServer, nil, "the tour sends an invalid cursor"},
	{"stdio/exit-pending", "status 3", "", nil, "the tour calls a tool that crashes the server"},

	{"mrtr/undeclared", "", capture.ToClient, []string{goSDKName, mcpGoName}, "the SDK leaves the check of capabilities to servers"},
	{"capability/client-undeclared", "", capture.ToClient, []string{goSDKName, mcpGoName, typeScript1Name}, "the SDK leaves the check of capabilities to servers"},
	{"jsonrpc/error-id-null", "", capture.ToClient, []string{typeScript1Name, typeScript2Name}, "errors of rejected HTTP requests have the id null in every revision"},
	{"shape/not-in-revision", "/content/", capture.ToClient, []string{goSDKName, mcpGoName, typeScript1Name, typeScript2Name, pythonName, rustName, javaName}, "it sends all kinds of content in every revision"},
	{"tools/unknown-as-result", "no_such_tool", capture.ToClient, []string{typeScript1Name, fastMCPName}, "a call of an unknown tool got a result"},
	{"tasks/begin", "input_required", capture.ToClient, []string{typeScript1Name}, "a task may begin with an input request"},
	{"shape/missing-member", `"ttl"`, capture.ToClient, []string{mcpGoName}, "it omits the time to live of a task without one, where null is required"},
	{"progress/after-completion", "", capture.ToClient, []string{mcpGoName, goSDKName}, "notifications have a separate queue, so some come after the result"},
	{"logging/not-asked", "", capture.ToClient, []string{mcpGoName}, "notifications have a separate queue, so some come after the result"},
	{"listen/no-id", "", capture.ToClient, []string{mcpGoName}, "notifications of changes on standard output lack the subscription id"},
	{"http/event-id-twice", `the id "0"`, capture.ToClient, []string{rustName}, "the stream of GET begins with the id of its first event"},
	{"http/event-id-twice", "", capture.ToClient, []string{javaName}, "all events have the session id as their id"},
	{"jsonrpc/not-a-message", "jsonRpcError", capture.ToClient, []string{javaName}, "a rejected HTTP request gets an exception as JSON, which is not a message"},
	{"cache/question-kept", "", capture.ToClient, []string{goSDKName}, "it adds caching hints to the input requests of a resource"},
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

// isOfPeer reports whether a finding is known of the peer, or caused by the tests.
func isOfPeer(f check.Finding, peer string) bool {
	return slices.ContainsFunc(knownFindings, func(k knownFinding) bool {
		return k.covers(f) && (k.of == nil || slices.Contains(k.of, peer))
	})
}

// checkTranscript checks the transcript of one process.
func checkTranscript(t *testing.T, events []event) []violation {
	t.Helper()
	return checkRecorded(t, "stdio", func(w *capture.Writer) {
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
			case signaled:
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

// checkHTTPEvents checks traffic over HTTP.
func checkHTTPEvents(t *testing.T, httpEvents []httpEvent) []violation {
	t.Helper()
	number := map[*exchange]uint64{}
	return checkRecorded(t, "http", func(w *capture.Writer) {
		for _, m := range httpEvents {
			if m.kind == requested {
				number[m.x] = uint64(len(number) + 1)
			}
			for _, e := range captureEvents(m) {
				e.Exchange = number[m.x]
				w.Record(e)
			}
		}
	})
}

func captureEvents(m httpEvent) []*capture.Event {
	switch m.kind {
	case requested:
		events := []*capture.Event{{Kind: capture.KindRequest, Dir: capture.ToServer, Request: &capture.Request{Method: m.x.method, URL: m.x.uri, Proto: "HTTP/1.1", Headers: headers(m.x.header)}}}
		if len(m.x.body) > 0 {
			events = append(events, &capture.Event{Kind: capture.KindMessage, Dir: capture.ToServer, Data: m.x.body})
		}
		return events
	case responded:
		return []*capture.Event{{Kind: capture.KindResponse, Dir: capture.ToClient, Response: &capture.Response{Status: m.x.status, Proto: "HTTP/1.1", Headers: headers(m.x.response)}}}
	case payloadSent:
		return []*capture.Event{payloadEvent(m.x, m.payload)}
	case hostClosed:
		return []*capture.Event{{Kind: capture.KindEnd, Data: []byte(context.Canceled.Error())}}
	case serverClosed:
		return []*capture.Event{{Kind: capture.KindEnd, Data: []byte("the server closed the connection")}}
	}
	return []*capture.Event{{Kind: capture.KindEnd}}
}

func payloadEvent(x *exchange, s payload) *capture.Event {
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
