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
		ID: "probe/batch", Severity: check.Warning, Revisions: only2,
		Title: "A batch is refused",
		Why:   "In this revision, and in no other, servers must take several messages in an array. Hardly any client sends one.",
		Fix:   "Answer each request in the array, in an array.",
		URL:   "basic#batching",
		Good:  check.Example{Revision: r2, Text: "init\n> [{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"ping\"}]\n< [{\"jsonrpc\":\"2.0\",\"id\":1,\"result\":{}}]"},
		Bad:   check.Example{Revision: r2, Text: "init\n> [{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"ping\"}]\n< {\"jsonrpc\":\"2.0\",\"id\":null,\"error\":{\"code\":-32600,\"message\":\"no batches\"}}"},
	},
	{
		ID: "probe/batch-taken", Severity: check.Info, Revisions: from3,
		Title: "A batch is carried out, though the revision has none",
		Why:   "Other servers refuse it, and so do proxies. The specification does not say what is due.",
		Fix:   "Answer -32600 to an array.",
		URL:   "changelog",
		Good:  check.Example{Revision: r4, Text: "init\n> [{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"ping\"}]\n< {\"jsonrpc\":\"2.0\",\"error\":{\"code\":-32600,\"message\":\"no batches\"}}"},
		Bad:   check.Example{Revision: r4, Text: "init\n> [{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"ping\"}]\n< [{\"jsonrpc\":\"2.0\",\"id\":1,\"result\":{}}]"},
	},
}

// batch sends two requests in an array.
func batch(ctx context.Context, v *visit) {
	first, second := v.id(), v.id()
	body := []byte("[" + string(v.harmless(first)) + "," + string(v.harmless(second)) + "]")
	var a answer
	if v.pipe != nil {
		a = v.batchLine(ctx, body, second)
	} else {
		a = v.ask(ctx, question{body: body, id: second, any: true, wait: min(probeWait, v.r.opts.Timeout)})
		v.r.journal.excuse(a.asked)
	}
	switch {
	case a.fate == gone && v.rev != r2:
		v.fragile(&a, "after a batch")
	case a.succeeded():
		v.r.journal.excuse(a.at)
		v.find("batch-taken", &a, "the requests of a batch are answered")
	default:
		v.excuseEnd(&a)
		v.find("batch", &a, "a batch %s", v.outcome(&a))
	}
}

// batchLine sends a batch on a line, and then another request: what has not been answered soon after that will not be.
func (v *visit) batchLine(ctx context.Context, body []byte, id string) answer {
	sent := v.ask(ctx, question{body: body})
	v.r.journal.excuse(sent.asked)
	after, ok := v.survives(ctx)
	after.before = append(sent.before, after.before...)
	if !ok {
		return after
	}
	for _, m := range after.before {
		if sameID(m.ID, []byte(id)) || m.Kind == jsonrpc.KindError {
			found := answer{asked: sent.asked}
			found.take(&m.Message, nil, m.n)
			return found
		}
	}
	late := v.ask(ctx, question{id: id, any: true, listen: true, wait: afterthought})
	late.at, late.dir = max(late.at, sent.asked), capture.ToClient
	return late
}
