package probe

import (
	"context"
	"os"
	"syscall"
	"time"

	"mcpwire/capture"
	"mcpwire/jsonrpc"
)

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

func badJSON(ctx context.Context, d *driver) {
	reply, after, ok := d.sendMalformed(ctx, "this is not JSON {")
	switch {
	case !ok:
		d.reportFragile(&after, "after a line that is not JSON")
	case reply == nil:
		d.report("garbage-unanswered", &after, "no error came before the response to the next request")
	case reply.Code != jsonrpc.CodeParseError:
		d.report("error-code", &after, "a line that is not JSON got error %d; want -32700", reply.Code)
	}
}

// reportFragile reports a server that stops working.
func (d *driver) reportFragile(a *reply, about string) {
	d.waiveEnd(a)
	d.stale = true
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
		{"an empty object", `{}`},
	} {
		if !d.conn.alive() {
			return
		}
		reply, after, ok := d.sendMalformed(ctx, bad.body)
		switch {
		case !ok:
			d.reportFragile(&after, "after "+bad.about)
		case reply == nil:
			d.report("invalid-request", &after, "%s instead of a message got no response", bad.about)
		case reply.Code != jsonrpc.CodeInvalidRequest && reply.Code != jsonrpc.CodeParseError:
			d.report("invalid-request", &after, "%s instead of a message got error %d", bad.about, reply.Code)
		}
	}
}

func lineEnds(ctx context.Context, d *driver) {
	reply, after, ok := d.sendMalformed(ctx, "")
	switch {
	case !ok:
		d.waiveEnd(&after)
		d.report("line-ends", &after, "after a blank line: %s", d.describeReply(&after))
		return
	case reply != nil:
		d.report("line-ends", &after, "a blank line got error %d", reply.Code)
	}
	a := d.send(ctx, outgoing{body: d.harmlessRequest(d.nextID()), id: d.lastID(), anyID: true, framing: capture.FramingCRLF})
	if a.state != answered || a.failed(jsonrpc.CodeParseError, jsonrpc.CodeInvalidRequest) {
		d.waiveEnd(&a)
		d.report("line-ends", &a, "a request that ends in CR LF %s", d.outcomeText(&a))
	}
}

// maxExitTime is how long a server may take to end.
const maxExitTime = 2 * time.Second

func endOfInput(_ context.Context, d *driver) {
	d.stdio.closeInput()
	d.awaitExit("eof", "the end of its input")
}

// awaitExit waits for the end of the process, and reports a finding if it does not come.
func (d *driver) awaitExit(rule, cause string) {
	if !d.stdio.waitExit() {
		d.report(rule, &reply{event: d.stdio.endEvent}, "it is still running %v after %s", maxExitTime, cause)
	}
}

// closeInputEarly sends a request and closes the input at once.
func closeInputEarly(ctx context.Context, d *driver) {
	a := d.send(ctx, outgoing{body: d.harmlessRequest(d.nextID())})
	d.r.recorder.waive(a.requestEvent)
	d.stdio.closeInput()
	if len(a.before) > 0 {
		// The response has already come.
		return
	}
	b := d.send(ctx, outgoing{id: d.lastID(), wait: maxExitTime, receiveOnly: true})
	if b.state != answered {
		d.report("eof-answers", &a, "a request just before the end of the input got no response")
	}
}

// terminate sends SIGTERM, on systems that have it.
func terminate(_ context.Context, d *driver) {
	if d.stdio.Child().Pid() <= 0 {
		return
	}
	p, err := os.FindProcess(d.stdio.Child().Pid())
	if err != nil {
		return
	}
	defer p.Release()
	select {
	// The process id may have been reused.
	case <-d.stdio.Child().Done():
		return
	default:
	}
	if p.Signal(syscall.SIGTERM) != nil { // Windows does not have it
		return
	}
	d.stdio.waived = true
	d.stdio.endEvent = d.r.recorder.record(&capture.Event{Kind: capture.KindNote, Session: d.stdio.session, Data: []byte("the probe sent SIGTERM")})
	d.awaitExit("sigterm", "SIGTERM")
	d.stdio.inputClosed = true
}
