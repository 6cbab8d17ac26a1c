package probe

import (
	"context"

	"mcpwire/capture"
	"mcpwire/check"
	"mcpwire/jsonrpc"
)

// rulesBatch are the rules about several messages in an array.
var rulesBatch = []check.Rule{
	{
		ID: "probe/batch", Severity: check.Warning, Revisions: hasBatches,
		Title: "A batch is refused",
		Why:   "In this revision, and in no other, servers must take several messages in an array. Hardly any client sends one.",
		Fix:   "Answer each request in the array, in an array.",
		URL:   "basic#batching",
		Good:  check.Example{Revision: rev20250326, Text: "init\n> [{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"ping\"}]\n< [{\"jsonrpc\":\"2.0\",\"id\":1,\"result\":{}}]"},
		Bad:   check.Example{Revision: rev20250326, Text: "init\n> [{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"ping\"}]\n< {\"jsonrpc\":\"2.0\",\"id\":null,\"error\":{\"code\":-32600,\"message\":\"no batches\"}}"},
	},
	{
		ID: "probe/batch-taken", Severity: check.Info, Revisions: lacksBatches,
		Title: "A batch is carried out, though the revision has none",
		Why:   "Other servers refuse it, and so do proxies. The specification does not say what is due.",
		Fix:   "Answer -32600 to an array.",
		URL:   "changelog",
		Good:  check.Example{Revision: rev20251125, Text: "init\n> [{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"ping\"}]\n< {\"jsonrpc\":\"2.0\",\"error\":{\"code\":-32600,\"message\":\"no batches\"}}"},
		Bad:   check.Example{Revision: rev20251125, Text: "init\n> [{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"ping\"}]\n< [{\"jsonrpc\":\"2.0\",\"id\":1,\"result\":{}}]"},
	},
}

// batch sends two requests in an array.
func batch(ctx context.Context, d *driver) {
	first, second := d.nextID(), d.nextID()
	body := []byte("[" + string(d.harmlessRequest(first)) + "," + string(d.harmlessRequest(second)) + "]")
	var a reply
	if d.stdio != nil {
		a = d.sendBatchLine(ctx, body, second)
	} else {
		a = d.send(ctx, outgoing{body: body, id: second, anyID: true, wait: min(initializeDelay, d.r.opts.Timeout)})
		d.r.recorder.waive(a.requestEvent)
	}
	switch {
	case a.state == disconnected && d.rev != rev20250326:
		d.reportFragile(&a, "after a batch")
	case a.succeeded():
		d.r.recorder.waive(a.event)
		d.report("batch-taken", &a, "the requests of a batch are answered")
	default:
		d.waiveEnd(&a)
		d.report("batch", &a, "a batch %s", d.outcomeText(&a))
	}
}

// sendBatchLine sends a batch on a line, and then another request: what has not been answered soon after that will not be.
func (d *driver) sendBatchLine(ctx context.Context, body []byte, id string) reply {
	sent := d.send(ctx, outgoing{body: body})
	d.r.recorder.waive(sent.requestEvent)
	after, ok := d.stillAnswers(ctx)
	after.before = append(sent.before, after.before...)
	if !ok {
		return after
	}
	for _, m := range after.before {
		if sameID(m.ID, []byte(id)) || m.Kind == jsonrpc.KindError {
			found := reply{requestEvent: sent.requestEvent}
			found.set(&m.Message, nil, m.n)
			return found
		}
	}
	late := d.send(ctx, outgoing{id: id, anyID: true, receiveOnly: true, wait: lateReplyTimeout})
	late.event, late.dir = max(late.event, sent.requestEvent), capture.ToClient
	return late
}
