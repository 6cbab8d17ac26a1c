package probe

import (
	"bytes"
	"context"
	"strings"

	"mcpwire/capture"
	"mcpwire/check"
	"mcpwire/jsonrpc"
	"mcpwire/mcp"
)

// rulesIDs are the rules about ids and large messages.
var rulesIDs = []check.Rule{
	{
		ID: "probe/id-huge", Severity: check.Info,
		Title: "An id beyond 53 bits is not answered, or comes back as another one",
		Why:   "Clients that count from a large number, or take a hash for an id, wait for ever. It is the reason why most count from 1.",
		Fix:   "Keep the text of ids, and do not read them as floating point numbers.",
		URL:   "basic#requests",
		Good:  check.Example{Revision: rev20251125, Text: "init\n> {\"jsonrpc\":\"2.0\",\"id\":9007199254740993,\"method\":\"ping\"}\n< {\"jsonrpc\":\"2.0\",\"id\":9007199254740993,\"result\":{}}"},
		Bad:   check.Example{Revision: rev20251125, Text: "init\n> {\"jsonrpc\":\"2.0\",\"id\":9007199254740993,\"method\":\"ping\"}\n< {\"jsonrpc\":\"2.0\",\"id\":9007199254740992,\"result\":{}}"},
	},
	{
		ID: "probe/large-message", Severity: check.Info,
		Title: "A request with an argument of 1 MiB is not carried out",
		Why:   "Documents and pictures are as large. There is no limit in the specification, but hosts do not know of one either.",
		Fix:   "Allow some megabytes; refuse more with an error.",
		URL:   "server/tools#calling-tools",
		Good:  check.Example{Revision: rev20251125, Text: "init server={\"tools\":{}}\n# the argument has 1 MiB\n> {\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"tools/call\",\"params\":{\"name\":\"nobody\",\"arguments\":{\"text\":\"xxx\"}}}\n< {\"jsonrpc\":\"2.0\",\"id\":1,\"error\":{\"code\":-32602,\"message\":\"unknown tool\"}}"},
		Bad:   check.Example{Revision: rev20251125, Text: "http\n# the argument has 1 MiB\npost {\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"tools/call\",\"params\":{\"name\":\"nobody\",\"arguments\":{\"text\":\"xxx\"}}}\nreply 413"},
	},
}

// plainIDs asks with ids that are easy to get wrong. Whether they come back as they were, package check tells.
func plainIDs(ctx context.Context, d *driver) {
	for _, id := range []string{`0`, `-1`, `9007199254740991`, `"7"`, `"a\u0062"`, `"ü/\"\\"`, `""`, `"` + strings.Repeat("x", 300) + `"`} {
		if !d.conn.alive() {
			return
		}
		a := d.send(ctx, outgoing{body: d.harmlessRequest(id), id: id})
		d.connectionEnded(&a, "a request with the id "+show(id))
	}
}

// harmlessRequest is a request that every server answers.
func (d *driver) harmlessRequest(id string) []byte {
	method := mcp.MethodPing
	if d.rev.Modern() {
		method = mcp.MethodDiscover
	}
	return request(id, method, d.params(nil))
}

func hugeID(ctx context.Context, d *driver) {
	const id = "9007199254740993"
	response := func(m *jsonrpc.Message) bool { return m.Kind == jsonrpc.KindResponse || m.Kind == jsonrpc.KindError }
	a := d.send(ctx, outgoing{body: d.harmlessRequest(id), id: id, stopAt: response, wait: min(initializeDelay, d.r.opts.Timeout)})
	if a.state == stoppedEarly && len(a.before) > 0 {
		d.r.recorder.waive(a.event)
		d.r.recorder.waive(a.requestEvent)
		d.report("id-huge", &a, "the id %s comes back as %s", id, show(a.before[len(a.before)-1].ID))
		return
	}
	switch a.state {
	case timedOut: // libraries refuse such numbers
		d.r.recorder.waive(a.requestEvent)
		d.report("id-huge", &a, "a request with the id %s has no answer", id)
	case disconnected:
		d.connectionEnded(&a, "a request with the id "+id)
	}
}

// escapedText sends characters that are easy to break, in all the ways JSON has to write them.
func escapedText(ctx context.Context, d *driver) {
	if !d.has("tools") {
		return
	}
	text := "żółć 世界 \u2028\u2029 \U0001F600 \u0000 \\ \" / \n\r\t"
	plain := request(d.nextID(), mcp.MethodToolsCall, d.params(object{"name": noSuchTool, "arguments": object{"text": text}}))
	escaped := bytes.ReplaceAll(plain, []byte("/"), []byte(`\/`))
	for _, body := range [][]byte{plain, bytes.Replace(escaped, []byte(`"id":`+d.lastID()), []byte(`"id" : "again"`), 1)} {
		id := d.lastID()
		if bytes.Contains(body, []byte(`"again"`)) {
			id = `"again"`
		}
		a := d.send(ctx, outgoing{body: body, id: id})
		if d.connectionEnded(&a, "a request with characters of all kinds") {
			return
		}
	}
}

func bigArgument(ctx context.Context, d *driver) {
	if !d.has("tools") {
		return
	}
	a := d.call(ctx, mcp.MethodToolsCall, object{"name": noSuchTool, "arguments": object{"text": strings.Repeat("x", 1<<20)}})
	switch {
	case a.state == disconnected && d.stdio != nil:
		d.reportFragile(&a, "a request with an argument of 1 MiB")
	case a.state == disconnected, a.status == 413, a.state == answered && a.rpcError == nil && a.status >= 400:
		d.report("large-message", &a, "it %s", d.outcomeText(&a))
	}
	if a.state == disconnected {
		a.dir = capture.ToClient
	}
}
