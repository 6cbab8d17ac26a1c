package probe

import (
	"context"
	"fmt"
	"syscall"
	"time"

	"mcpwire/capture"
	"mcpwire/check"
	"mcpwire/jsonrpc"
)

// rulesStdio are the rules about lines that are not messages.
var rulesStdio = []check.Rule{
	{
		ID: "probe/garbage-unanswered", Severity: check.Info,
		Title: "A line that is no JSON is passed over in silence",
		Why:   "Whoever has sent it waits for an answer that never comes. JSON-RPC has an error for it; many servers do without.",
		Fix:   "Answer -32700 without an id.",
		URL:   "https://www.jsonrpc.org/specification#error_object",
		Good:  check.Example{Revision: rev20251125, Text: "init\n> hello\n< {\"jsonrpc\":\"2.0\",\"error\":{\"code\":-32700,\"message\":\"parse error\"}}"},
		Bad:   check.Example{Revision: rev20251125, Text: "init\n> hello\n> {\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"ping\"}\n< {\"jsonrpc\":\"2.0\",\"id\":1,\"result\":{}}"},
	},
	{
		ID: "probe/invalid-request", Severity: check.Info,
		Title: "JSON that is no message is not answered with -32600",
		Why:   "Whoever has sent it waits for an answer that never comes, or looks in the wrong place.",
		Fix:   "Answer -32600, with the id if there is a good one.",
		URL:   "https://www.jsonrpc.org/specification#error_object",
		Good:  check.Example{Revision: rev20251125, Text: "init\n> {\"id\":1,\"method\":\"tools/list\"}\n< {\"jsonrpc\":\"2.0\",\"id\":1,\"error\":{\"code\":-32600,\"message\":\"not a request\"}}"},
		Bad:   check.Example{Revision: rev20251125, Text: "init\n> {\"id\":1,\"method\":\"tools/list\"}\n> {\"jsonrpc\":\"2.0\",\"id\":2,\"method\":\"ping\"}\n< {\"jsonrpc\":\"2.0\",\"id\":2,\"result\":{}}"},
	},
	{
		ID: "probe/line-ends", Severity: check.Info,
		Title: "A blank line, or one that ends in CR LF, disturbs the server",
		Why:   "Clients on Windows, and people with a terminal, write such lines. The specification does not mention them.",
		Fix:   "Pass over blank lines, and take CR before LF for white space, as JSON does.",
		URL:   "basic/transports#stdio",
		Good:  check.Example{Revision: rev20251125, Text: "init\n>(crlf) {\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"ping\"}\n< {\"jsonrpc\":\"2.0\",\"id\":1,\"result\":{}}"},
		Bad:   check.Example{Revision: rev20251125, Text: "init\n>(crlf) {\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"ping\"}\n< {\"jsonrpc\":\"2.0\",\"error\":{\"code\":-32700,\"message\":\"parse error\"}}"},
	},
}

// sendMalformed sends a text that need not be answered, and then a request that must be. An error
// without an id that comes meanwhile is the response to the text.
func (d *driver) sendMalformed(ctx context.Context, body string) (rpcErr *jsonrpc.Error, after reply, ok bool) {
	first := d.send(ctx, outgoing{body: []byte(body)})
	after, ok = d.stillAnswers(ctx)
	after.before = append(first.before, after.before...)
	for _, m := range after.before {
		if m.Kind == jsonrpc.KindError && rpcErr == nil {
			rpcErr = m.Err()
		}
	}
	// Servers need not keep the order.
	if ok && rpcErr == nil && body != "" {
		late := d.send(ctx, outgoing{anyID: true, receiveOnly: true, wait: lateReplyTimeout})
		rpcErr = late.rpcError
	}
	return rpcErr, after, ok
}

// lateReplyTimeout limits the wait for an optional response.
const lateReplyTimeout = 300 * time.Millisecond

// badJSON sends invalid JSON.
func badJSON(ctx context.Context, d *driver) {
	reply, after, ok := d.sendMalformed(ctx, "this is no JSON {")
	switch {
	case !ok:
		d.reportFragile(&after, "after a line that is no JSON")
	case reply == nil:
		d.report("garbage-unanswered", &after, "nothing came before the answer to the next request")
	case reply.Code != jsonrpc.CodeParseError:
		d.report("error-code", &after, "a line that is no JSON is answered with error %d, not -32700", reply.Code)
	}
}

// reportFragile reports a server that stops working.
func (d *driver) reportFragile(a *reply, about string) {
	d.waiveEnd(a)
	d.report("fragile", a, "%s: %s", about, d.describeReply(a))
}

// waiveEnd drops other findings about the end of a server that the probe caused.
func (d *driver) waiveEnd(a *reply) {
	d.r.recorder.waive(a.requestEvent)
	if d.stdio != nil && a.state == disconnected {
		d.stdio.waived = true
	}
}

// wrongEnvelope sends JSON that is not a message.
func wrongEnvelope(ctx context.Context, d *driver) {
	for _, bad := range []struct{ about, body string }{
		{"an object without jsonrpc", `{"id":"mcpwire-envelope","method":"` + noSuchMethod + `"}`},
		{"a number", `42`},
		{"an object without anything", `{}`},
	} {
		if !d.conn.alive() {
			return
		}
		reply, after, ok := d.sendMalformed(ctx, bad.body)
		switch {
		case !ok:
			d.reportFragile(&after, "after "+bad.about)
		case reply == nil:
			d.report("invalid-request", &after, "%s in the place of a message is not answered", bad.about)
		case reply.Code != jsonrpc.CodeInvalidRequest && reply.Code != jsonrpc.CodeParseError:
			d.report("invalid-request", &after, "%s in the place of a message is answered with error %d", bad.about, reply.Code)
		}
	}
}

// lineEnds sends blank lines and CR LF.
func lineEnds(ctx context.Context, d *driver) {
	reply, after, ok := d.sendMalformed(ctx, "")
	switch {
	case !ok:
		d.waiveEnd(&after)
		d.report("line-ends", &after, "after a blank line: %s", d.describeReply(&after))
		return
	case reply != nil:
		d.report("line-ends", &after, "a blank line is answered with error %d", reply.Code)
	}
	a := d.send(ctx, outgoing{body: d.harmlessRequest(d.nextID()), id: d.lastID(), anyID: true, lineEnd: "\r\n"})
	if !a.succeeded() {
		d.waiveEnd(&a)
		d.report("line-ends", &a, "a request that ends in CR LF %s", d.outcomeText(&a))
	}
}

// rulesShutdown are the rules about the end of a process.
var rulesShutdown = []check.Rule{
	{
		ID: "probe/eof", Severity: check.Warning,
		Title: "The server goes on when its standard input has ended",
		Why:   "The end of its input is how a server learns that its host has gone, and the only way on all systems. Servers that go on are left behind, one for each start.",
		Fix:   "Exit when standard input ends; do not wait for timers, watchers or sockets.",
		URL:   "basic/transports/stdio#shutdown",
		Good:  check.Example{Revision: rev20251125, Text: "init\neof >\nexit 0"},
		Bad:   check.Example{Revision: rev20251125, Text: "init\neof >\nwait 5s\nexit signal terminated"},
	},
	{
		ID: "probe/sigterm", Severity: check.Warning,
		Title: "The server goes on when it is sent SIGTERM",
		Why:   "Hosts then kill it, and what it has open is lost; service managers wait for minutes.",
		Fix:   "Leave SIGTERM alone, or exit soon after it.",
		URL:   "basic/transports/stdio#shutdown",
		Good:  check.Example{Revision: rev20251125, Text: "init\nexit signal terminated"},
		Bad:   check.Example{Revision: rev20251125, Text: "init\nwait 5s\nexit signal killed"},
	},
	{
		ID: "probe/eof-answers", Severity: check.Info,
		Title: "What was asked just before the end of the input is not answered",
		Why:   "Scripts that write requests into a pipe, and shells, close it at once. The specification does not say what is due.",
		Fix:   "Answer what has been read, then exit.",
		URL:   "basic/transports/stdio#shutdown",
		Good:  check.Example{Revision: rev20251125, Text: "init\n> {\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"ping\"}\neof >\n< {\"jsonrpc\":\"2.0\",\"id\":1,\"result\":{}}\nexit 0"},
		Bad:   check.Example{Revision: rev20251125, Text: "init\n> {\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"ping\"}\neof >\nexit 0"},
	},
}

// maxExitTime is how long a server may take to end.
const maxExitTime = 2 * time.Second

// endOfInput closes the input.
func endOfInput(_ context.Context, d *driver) {
	if took, ok := d.stdio.closeInputAndWait(maxExitTime); !ok {
		d.endFinding("eof", fmt.Sprintf("it still runs %v after the end of its input", took.Round(time.Millisecond)))
	}
}

func (d *driver) endFinding(rule, text string) {
	d.report(rule, &reply{event: d.stdio.endEvent}, "%s", text)
}

// answersAtEnd sends a request and closes the input at once.
func answersAtEnd(ctx context.Context, d *driver) {
	a := d.send(ctx, outgoing{body: d.harmlessRequest(d.nextID())})
	d.r.recorder.waive(a.requestEvent)
	d.stdio.closeInput()
	if len(a.before) > 0 {
		// The response has already come.
		return
	}
	b := d.send(ctx, outgoing{id: d.lastID(), wait: maxExitTime, receiveOnly: true})
	if b.state != answered {
		d.report("eof-answers", &a, "a request just before the end of the input has no answer")
	}
}

// terminate sends SIGTERM, on systems that have it.
func terminate(_ context.Context, d *driver) {
	if d.stdio.proc.Pid() <= 0 || !canSignal {
		return
	}
	select {
	// The process id may have been reused.
	case <-d.stdio.proc.Done():
		return
	default:
	}
	start := time.Now()
	if signal(d.stdio.proc.Pid(), syscall.SIGTERM) != nil {
		return
	}
	late := time.NewTimer(maxExitTime)
	defer late.Stop()
	d.stdio.waived = true
	d.stdio.endEvent = d.stdio.record(&capture.Event{Kind: capture.KindNote, Data: []byte("the probe sent SIGTERM")})
	if took, ok := d.stdio.waitExit(start, late.C); !ok {
		d.endFinding("sigterm", fmt.Sprintf("it still runs %v after SIGTERM", took.Round(time.Millisecond)))
	}
	d.stdio.inputClosed = true
}
