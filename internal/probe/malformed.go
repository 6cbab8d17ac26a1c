package probe

import (
	"context"
	"time"

	"mcpwire/check"
	"mcpwire/jsonrpc"
)

// rulesStdio are the rules about lines that are no messages.
var rulesStdio = []check.Rule{
	{
		ID: "probe/garbage-unanswered", Severity: check.Info,
		Title: "A line that is no JSON is passed over in silence",
		Why:   "Whoever has sent it waits for an answer that never comes. JSON-RPC has an error for it; many servers do without.",
		Fix:   "Answer -32700 without an id.",
		URL:   "https://www.jsonrpc.org/specification#error_object",
		Good:  check.Example{Revision: r4, Text: "init\n> hello\n< {\"jsonrpc\":\"2.0\",\"error\":{\"code\":-32700,\"message\":\"parse error\"}}"},
		Bad:   check.Example{Revision: r4, Text: "init\n> hello\n> {\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"ping\"}\n< {\"jsonrpc\":\"2.0\",\"id\":1,\"result\":{}}"},
	},
	{
		ID: "probe/invalid-request", Severity: check.Info,
		Title: "JSON that is no message is not answered with -32600",
		Why:   "Whoever has sent it waits for an answer that never comes, or looks in the wrong place.",
		Fix:   "Answer -32600, with the id if there is a good one.",
		URL:   "https://www.jsonrpc.org/specification#error_object",
		Good:  check.Example{Revision: r4, Text: "init\n> {\"id\":1,\"method\":\"tools/list\"}\n< {\"jsonrpc\":\"2.0\",\"id\":1,\"error\":{\"code\":-32600,\"message\":\"not a request\"}}"},
		Bad:   check.Example{Revision: r4, Text: "init\n> {\"id\":1,\"method\":\"tools/list\"}\n> {\"jsonrpc\":\"2.0\",\"id\":2,\"method\":\"ping\"}\n< {\"jsonrpc\":\"2.0\",\"id\":2,\"result\":{}}"},
	},
	{
		ID: "probe/line-ends", Severity: check.Info,
		Title: "A blank line, or one that ends in CR LF, disturbs the server",
		Why:   "Clients on Windows, and people with a terminal, write such lines. The specification does not mention them.",
		Fix:   "Pass over blank lines, and take CR before LF for white space, as JSON does.",
		URL:   "basic/transports#stdio",
		Good:  check.Example{Revision: r4, Text: "init\n>(crlf) {\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"ping\"}\n< {\"jsonrpc\":\"2.0\",\"id\":1,\"result\":{}}"},
		Bad:   check.Example{Revision: r4, Text: "init\n>(crlf) {\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"ping\"}\n< {\"jsonrpc\":\"2.0\",\"error\":{\"code\":-32700,\"message\":\"parse error\"}}"},
	},
}

// provoke sends something that may be answered or not, and then a request that must be: an error without an id that comes about then is the answer to the
// first.
func (v *visit) provoke(ctx context.Context, body string) (reply *jsonrpc.Error, after answer, ok bool) {
	first := v.ask(ctx, question{body: []byte(body)})
	after, ok = v.survives(ctx)
	after.before = append(first.before, after.before...)
	for _, m := range after.before {
		if m.Kind == jsonrpc.KindError && reply == nil {
			reply = m.Err()
		}
	}
	if ok && reply == nil && body != "" { // servers need not keep the order
		late := v.ask(ctx, question{any: true, listen: true, wait: afterthought})
		reply = late.rpc
	}
	return reply, after, ok
}

// afterthought is how long to wait for an answer that need not come.
const afterthought = 300 * time.Millisecond

// garbage sends what is no JSON.
func garbage(ctx context.Context, v *visit) {
	reply, after, ok := v.provoke(ctx, "this is no JSON {")
	switch {
	case !ok:
		v.fragile(&after, "after a line that is no JSON")
	case reply == nil:
		v.find("garbage-unanswered", &after, "nothing came before the answer to the next request")
	case reply.Code != jsonrpc.CodeParseError:
		v.find("error-code", &after, "a line that is no JSON is answered with error %d, not -32700", reply.Code)
	}
}

// fragile reports a server that does not live on.
func (v *visit) fragile(a *answer, about string) {
	v.excuseEnd(a)
	v.find("fragile", a, "%s: %s", about, v.what(a))
}

// excuseEnd has nothing else found in the end of a server that what the probe sent has ended.
func (v *visit) excuseEnd(a *answer) {
	v.r.journal.excuse(a.asked)
	if v.pipe != nil && a.fate == gone {
		v.pipe.excused = true
	}
}

// wrongEnvelope sends JSON that is no message.
func wrongEnvelope(ctx context.Context, v *visit) {
	for _, bad := range []struct{ about, body string }{
		{"an object without jsonrpc", `{"id":"mcpwire-envelope","method":"` + nobodysMethod + `"}`},
		{"a number", `42`},
		{"an object without anything", `{}`},
	} {
		if !v.link.alive() {
			return
		}
		reply, after, ok := v.provoke(ctx, bad.body)
		switch {
		case !ok:
			v.fragile(&after, "after "+bad.about)
		case reply == nil:
			v.find("invalid-request", &after, "%s in the place of a message is not answered", bad.about)
		case reply.Code != jsonrpc.CodeInvalidRequest && reply.Code != jsonrpc.CodeParseError:
			v.find("invalid-request", &after, "%s in the place of a message is answered with error %d", bad.about, reply.Code)
		}
	}
}

// lineEnds sends blank lines and CR LF.
func lineEnds(ctx context.Context, v *visit) {
	reply, after, ok := v.provoke(ctx, "")
	switch {
	case !ok:
		v.excuseEnd(&after)
		v.find("line-ends", &after, "after a blank line: %s", v.what(&after))
		return
	case reply != nil:
		v.find("line-ends", &after, "a blank line is answered with error %d", reply.Code)
	}
	a := v.ask(ctx, question{body: v.harmless(v.id()), id: v.last(), any: true, ending: "\r\n"})
	if !a.succeeded() {
		v.excuseEnd(&a)
		v.find("line-ends", &a, "a request that ends in CR LF %s", v.outcome(&a))
	}
}
