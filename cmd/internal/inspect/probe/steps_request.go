package probe

import (
	"bytes"
	"context"
	"fmt"
	"strings"

	"mcpwire/capture"
	"mcpwire/check"
	"mcpwire/cmd/internal/trace/wireclient"
	"mcpwire/internal/era"
	"mcpwire/internal/json/jsonwire"
	"mcpwire/jsonrpc"
	"mcpwire/mcp"
)

// lists reads all pages of the lists that the server has declared.
func lists(ctx context.Context, d *driver) {
	d.usual = true
	defer func() { d.usual = false }()
	for _, l := range []struct{ capability, method, member string }{
		{"tools", mcp.MethodToolsList, "tools"},
		{"resources", mcp.MethodResourcesList, "resources"},
		{"resources", mcp.MethodResourceTemplatesList, "resourceTemplates"},
		{"prompts", mcp.MethodPromptsList, "prompts"},
	} {
		if !d.has(l.capability) {
			continue
		}
		var params object
		for range maxPages {
			a := d.call(ctx, l.method, params)
			if d.connectionEnded(&a, l.method) {
				break
			}
			// Servers with resources but without templates often do not support the list of
			// templates.
			d.job.failing[l.method] = a.rpcError
			if a.failed() && !(l.method == mcp.MethodResourceTemplatesList && a.failed(jsonrpc.CodeMethodNotFound)) {
				d.noteFailure(l.method, &a)
				d.report(refusal(&a), &a, "%s is declared, and %s %s", l.capability, l.method, d.outcomeText(&a))
			}
			if !a.failed() && a.status >= 400 {
				d.noteFailure(l.method, &a)
			}
			if list := jsonwire.Lookup(a.result, l.member); a.succeeded() && (len(list) == 0 || list[0] != '[') {
				a.list = fmt.Sprintf("the result has no member %q", l.member)
				if len(list) > 0 {
					a.list = fmt.Sprintf("%q is %s", l.member, list[:min(len(list), 60)])
				}
				d.noteFailure(l.method, &a)
			}
			if _, left := era.WithoutMalformed(l.method, a.result); len(left) > 0 && a.succeeded() {
				a.item = left[0].Error()
				d.noteFailure(l.method, &a)
			}
			if list := elements(jsonwire.Lookup(a.result, l.member), 1); len(list) > 0 && d.firstEntries[l.member] == nil {
				d.firstEntries[l.member] = list[0]
			}
			cursor := jsonwire.Lookup(a.result, "nextCursor")
			if a.empty = a.succeeded() && l.member == "tools" && params == nil && len(cursor) == 0 && len(elements(jsonwire.Lookup(a.result, l.member), 1)) == 0 && a.list == ""; a.empty {
				d.noteFailure(l.method, &a)
			}
			if len(cursor) == 0 || cursor[0] != '"' {
				break
			}
			d.r.paged.Store(true)
			params = object{"cursor": jsonwire.Text(cursor)}
		}
	}
}

// refusal returns the rule for a correct request that gets an error.
func refusal(a *reply) string {
	if outage(a) {
		return "failing"
	}
	return "refused"
}

func unknownMethod(ctx context.Context, d *driver) {
	a := d.call(ctx, noSuchMethod, nil)
	if d.connectionEnded(&a, "an unknown method") {
		return
	}
	d.expectError("unknown-method", &a, "an unknown method", jsonrpc.CodeMethodNotFound)
	d.modernRefusal(&a, "an unknown method", 404, jsonrpc.CodeMethodNotFound)
}

func invalidParams(ctx context.Context, d *driver) {
	due := []jsonrpc.Code{jsonrpc.CodeInvalidParams}
	if d.stdio == nil && d.rev.Modern() {
		// Without a name, Mcp-Name is missing too, and headers may be checked first.
		due = append(due, mcp.CodeHeaderMismatch)
	}
	if d.has("tools") {
		a := d.call(ctx, mcp.MethodToolsCall, object{})
		d.expectError("invalid-params", &a, "tools/call without a name", due...)
	}
	if d.has("prompts") && d.conn.alive() {
		a := d.call(ctx, mcp.MethodPromptsGet, object{"name": 7})
		d.expectError("invalid-params", &a, "prompts/get with a number for the name", due...)
	}
	if d.has("resources") && d.conn.alive() {
		a := d.call(ctx, mcp.MethodResourcesRead, object{})
		d.expectError("invalid-params", &a, "resources/read without a URI", due...)
	}
}

// unknownAsResult is a rule of package check that the step unknownTool reports once. Other steps
// also call an unknown tool.
const unknownAsResult = "tools/unknown-as-result"

func unknownTool(ctx context.Context, d *driver) {
	if !d.has("tools") {
		return
	}
	meta := object{mcp.MetaProgressToken: "mcpwire-probe"}
	if d.rev.Modern() {
		meta = d.r.meta(d.rev.String())
		meta[mcp.MetaProgressToken] = "mcpwire-probe"
	}
	a := d.call(ctx, mcp.MethodToolsCall, object{"name": noSuchTool, "arguments": object{}, "_meta": meta})
	// Package check can report it only if it knows the server's tools.
	if rule, ok := check.Lookup(unknownAsResult); ok && a.succeeded() && string(jsonwire.Lookup(a.result, "isError")) == "true" {
		d.r.recorder.waive(a.event, unknownAsResult)
		d.reportRule(rule, &a, "a call to an unknown tool got a result with isError; want error %d", jsonrpc.CodeInvalidParams)
		return
	}
	d.expectError("unknown-tool", &a, "an unknown tool", jsonrpc.CodeInvalidParams)
}

func unknownResource(ctx context.Context, d *driver) {
	if !d.has("resources") {
		return
	}
	codes := []jsonrpc.Code{jsonrpc.CodeInvalidParams}
	if !d.rev.Modern() {
		codes = append(codes, mcp.CodeResourceNotFound)
	}
	a := d.call(ctx, mcp.MethodResourcesRead, object{"uri": noSuchResource})
	d.expectError("unknown-resource", &a, "an unknown resource", codes...)
}

func unknownPrompt(ctx context.Context, d *driver) {
	if d.has("prompts") {
		a := d.call(ctx, mcp.MethodPromptsGet, object{"name": noSuchPrompt})
		d.expectError("unknown-prompt", &a, "an unknown prompt", jsonrpc.CodeInvalidParams)
	}
}

func completion(ctx context.Context, d *driver) {
	if !d.has("completions") {
		return
	}
	ref := func(name string) object { return object{"type": "ref/prompt", "name": name} }
	a := d.call(ctx, mcp.MethodComplete, object{"ref": ref(noSuchPrompt), "argument": object{"name": "a", "value": ""}})
	d.expectError("unknown-completion", &a, "a completion for an unknown prompt", jsonrpc.CodeInvalidParams)
	prompt := d.firstEntries["prompts"]
	if args := elements(jsonwire.Lookup(prompt, "arguments"), 1); len(args) > 0 && d.conn.alive() {
		a := d.call(ctx, mcp.MethodComplete, object{"ref": ref(jsonwire.Text(jsonwire.Lookup(prompt, "name"))), "argument": object{"name": jsonwire.Text(jsonwire.Lookup(args[0], "name")), "value": ""}})
		if !d.connectionEnded(&a, "completion/complete") && a.failed() {
			d.report(refusal(&a), &a, "completions are declared, and completion/complete for an argument of a prompt %s", d.outcomeText(&a))
		}
	}
}

func invalidCursor(ctx context.Context, d *driver) {
	for _, l := range []struct{ capability, method string }{
		{"tools", mcp.MethodToolsList}, {"resources", mcp.MethodResourcesList}, {"prompts", mcp.MethodPromptsList},
	} {
		if d.has(l.capability) && d.conn.alive() {
			a := d.call(ctx, l.method, object{"cursor": noSuchCursor})
			if sameError(a.rpcError, d.job.failing[l.method]) {
				// The list also fails without a cursor.
				continue
			}
			d.expectError("invalid-cursor", &a, l.method+" with an unknown cursor", jsonrpc.CodeInvalidParams)
		}
	}
}

func logLevel(ctx context.Context, d *driver) {
	if !d.has("logging") || d.rev.Modern() {
		return
	}
	a := d.call(ctx, mcp.MethodSetLevel, object{"level": "loud"})
	d.expectError("invalid-level", &a, "an unknown log level", jsonrpc.CodeInvalidParams)
	if !d.conn.alive() {
		return
	}
	a = d.call(ctx, mcp.MethodSetLevel, object{"level": "emergency"})
	if !d.connectionEnded(&a, mcp.MethodSetLevel) && a.failed() {
		d.report(refusal(&a), &a, "logging is declared, and logging/setLevel %s", d.outcomeText(&a))
	}
}

func unknownNotification(ctx context.Context, d *driver) {
	d.notify(ctx, noSuchNotification, nil)
	a, _ := d.stillAnswers(ctx)
	d.connectionEnded(&a, "an unknown notification")
}

func cancelUnknown(ctx context.Context, d *driver) {
	if d.rev.Modern() && d.http != nil {
		// Over HTTP, closing the stream cancels.
		return
	}
	d.notify(ctx, mcp.NotificationCancelled, object{"requestId": "mcpwire-probe-nobodys", "reason": "a probe"})
	a, _ := d.stillAnswers(ctx)
	d.connectionEnded(&a, "the cancellation of an unknown request")
}

// plainIDs sends ids that are easy to get wrong. Package check checks the ids of the responses.
func plainIDs(ctx context.Context, d *driver) {
	for _, id := range []string{`0`, `-1`, `9007199254740991`, `"7"`, `"a\u0062"`, `"ü/\"\\"`, `""`, `"` + strings.Repeat("x", 300) + `"`} {
		if !d.conn.alive() {
			return
		}
		a := d.send(ctx, outgoing{body: d.harmlessRequest(id), id: id})
		d.connectionEnded(&a, "a request with the id "+show(id))
	}
}

// harmlessRequest returns a request that every server supports.
func (d *driver) harmlessRequest(id string) []byte {
	method := mcp.MethodPing
	if d.rev.Modern() {
		method = mcp.MethodDiscover
	}
	return request(id, method, d.params(nil))
}

func hugeID(ctx context.Context, d *driver) {
	const id = "9007199254740993"
	wait := min(initializeDelay, d.r.opts.Timeout)
	if d.stdio != nil {
		// A response that takes much longer than another one will not come.
		usual, ok := d.stillAnswers(ctx)
		if !ok {
			return
		}
		wait = min(lateReplyTimeout+20*usual.took, wait)
	}
	a := d.send(ctx, outgoing{body: d.harmlessRequest(id), id: id, stopAt: wireclient.IsAnswer, wait: wait})
	if a.state == stoppedEarly && len(a.before) > 0 {
		d.r.recorder.waive(a.event)
		d.r.recorder.waive(a.requestEvent)
		d.report("id-huge", &a, "the response to id %s has the id %s", id, show(a.before[len(a.before)-1].ID))
		return
	}
	switch a.state {
	case timedOut: // libraries reject such numbers
		d.r.recorder.waive(a.requestEvent)
		d.report("id-huge", &a, "a request with the id %s got no response", id)
	case disconnected:
		d.connectionEnded(&a, "a request with the id "+id)
	}
}

// escapedText sends characters that are easy to break, in all JSON spellings.
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
		d.r.recorder.waive(a.event, unknownAsResult)
		if d.connectionEnded(&a, "a request with all kinds of characters") {
			return
		}
	}
}

func bigArgument(ctx context.Context, d *driver) {
	if !d.has("tools") {
		return
	}
	a := d.call(ctx, mcp.MethodToolsCall, object{"name": noSuchTool, "arguments": object{"text": strings.Repeat("x", 1<<20)}})
	d.r.recorder.waive(a.event, unknownAsResult)
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
	case a.state == disconnected && !era.Of(d.rev).Batches:
		d.reportFragile(&a, "after a batch")
	case a.succeeded():
		d.r.recorder.waive(a.event)
		d.report("batch-taken", &a, "the requests of a batch got responses")
	default:
		d.waiveEnd(&a)
		d.report("batch", &a, "a batch %s", d.outcomeText(&a))
	}
}

// sendBatchLine sends a batch and then another request. If the batch has no response soon after
// that one's, it gets none.
func (d *driver) sendBatchLine(ctx context.Context, body []byte, id string) reply {
	sent := d.send(ctx, outgoing{body: body})
	d.r.recorder.waive(sent.requestEvent)
	after, ok := d.stillAnswers(ctx)
	after.before = append(sent.before, after.before...)
	if !ok {
		return after
	}
	for _, m := range after.before {
		if m.ID.Equal(jsonrpc.ID(id)) || m.Kind == jsonrpc.KindError {
			found := reply{requestEvent: sent.requestEvent}
			found.set(&m.Message, nil, m.n)
			return found
		}
	}
	late := d.send(ctx, outgoing{id: id, anyID: true, receiveOnly: true, wait: lateReplyTimeout})
	late.event, late.dir = max(late.event, sent.requestEvent), capture.ToClient
	return late
}
