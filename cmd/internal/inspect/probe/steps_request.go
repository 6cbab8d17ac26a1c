package probe

import (
	"bytes"
	"context"
	"fmt"
	"strings"

	"mcpwire/capture"
	"mcpwire/check"
	"mcpwire/internal/era"
	"mcpwire/jsonrpc"
	"mcpwire/mcp"
)

// rulesAnswers are the rules about requests that must fail.
var rulesAnswers = []check.Rule{
	{
		ID: "probe/unknown-method", Severity: check.Error,
		Title: "An unknown method gets a result",
		Why:   "Clients detect features by errors: an empty result looks like a feature that does nothing.",
		Fix:   "Respond with -32601 to methods that are not implemented.",
		URL:   "basic#responses",
		Good:  check.Example{Revision: rev20251125, Text: "init\n> {\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"vendor/x\"}\n< {\"jsonrpc\":\"2.0\",\"id\":1,\"error\":{\"code\":-32601,\"message\":\"method not found\"}}"},
		Bad:   check.Example{Revision: rev20251125, Text: "init\n> {\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"vendor/x\"}\n< {\"jsonrpc\":\"2.0\",\"id\":1,\"result\":{}}"},
	},
	{
		ID: "probe/invalid-params", Severity: check.Warning,
		Title: "A request without a required parameter gets a result",
		Why:   "The client never learns of its error: the result goes to the model.",
		Fix:   "Respond with -32602 to tools/call without a name, and to params of the wrong type.",
		URL:   "server/tools#error-handling",
		Good:  check.Example{Revision: rev20251125, Text: "init server={\"tools\":{}}\n> {\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"tools/call\",\"params\":{}}\n< {\"jsonrpc\":\"2.0\",\"id\":1,\"error\":{\"code\":-32602,\"message\":\"no name\"}}"},
		Bad:   check.Example{Revision: rev20251125, Text: "init server={\"tools\":{}}\n> {\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"tools/call\",\"params\":{}}\n< {\"jsonrpc\":\"2.0\",\"id\":1,\"result\":{\"content\":[]}}"},
	},
	{
		ID: "probe/unknown-tool", Severity: check.Error,
		Title: "A call to an unknown tool succeeds",
		Why:   "The model assumes that the tool ran.",
		Fix:   "Respond with -32602 to names that are not in tools/list.",
		URL:   "server/tools#error-handling",
		Good:  check.Example{Revision: rev20251125, Text: "init server={\"tools\":{}}\n> {\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"tools/call\",\"params\":{\"name\":\"nobody\"}}\n< {\"jsonrpc\":\"2.0\",\"id\":1,\"error\":{\"code\":-32602,\"message\":\"unknown tool\"}}"},
		Bad:   check.Example{Revision: rev20251125, Text: "init server={\"tools\":{}}\n> {\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"tools/call\",\"params\":{\"name\":\"nobody\"}}\n< {\"jsonrpc\":\"2.0\",\"id\":1,\"result\":{\"content\":[]}}"},
	},
	{
		ID: "probe/unknown-resource", Severity: check.Warning,
		Title: "Reading an unknown resource succeeds",
		Why:   "Clients cannot tell an empty file from a missing one.",
		Fix:   "Respond with -32602, or -32002 in legacy revisions, to unknown URIs.",
		URL:   "server/resources#error-handling",
		Good:  check.Example{Revision: rev20251125, Text: "init server={\"resources\":{}}\n> {\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"resources/read\",\"params\":{\"uri\":\"x://nobody\"}}\n< {\"jsonrpc\":\"2.0\",\"id\":1,\"error\":{\"code\":-32002,\"message\":\"not found\"}}"},
		Bad:   check.Example{Revision: rev20251125, Text: "init server={\"resources\":{}}\n> {\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"resources/read\",\"params\":{\"uri\":\"x://nobody\"}}\n< {\"jsonrpc\":\"2.0\",\"id\":1,\"result\":{\"contents\":[{\"uri\":\"x://nobody\",\"text\":\"\"}]}}"},
	},
	{
		ID: "probe/unknown-prompt", Severity: check.Warning,
		Title: "An unknown prompt gets a result",
		Why:   "The user gets a conversation that was not intended.",
		Fix:   "Respond with -32602 to names that are not in prompts/list.",
		URL:   "server/prompts#error-handling",
		Good:  check.Example{Revision: rev20251125, Text: "init server={\"prompts\":{}}\n> {\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"prompts/get\",\"params\":{\"name\":\"nobody\"}}\n< {\"jsonrpc\":\"2.0\",\"id\":1,\"error\":{\"code\":-32602,\"message\":\"unknown prompt\"}}"},
		Bad:   check.Example{Revision: rev20251125, Text: "init server={\"prompts\":{}}\n> {\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"prompts/get\",\"params\":{\"name\":\"nobody\"}}\n< {\"jsonrpc\":\"2.0\",\"id\":1,\"result\":{\"messages\":[]}}"},
	},
	{
		ID: "probe/unknown-completion", Severity: check.Info,
		Title: "A completion for an unknown prompt gets a result",
		Why:   "The client offers values for a prompt that does not exist.",
		Fix:   "Respond with -32602 to unknown references.",
		URL:   "server/utilities/completion#error-handling",
		Good:  check.Example{Revision: rev20251125, Text: "init server={\"completions\":{}}\n> {\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"completion/complete\",\"params\":{\"ref\":{\"type\":\"ref/prompt\",\"name\":\"nobody\"},\"argument\":{\"name\":\"a\",\"value\":\"\"}}}\n< {\"jsonrpc\":\"2.0\",\"id\":1,\"error\":{\"code\":-32602,\"message\":\"unknown prompt\"}}"},
		Bad:   check.Example{Revision: rev20251125, Text: "init server={\"completions\":{}}\n> {\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"completion/complete\",\"params\":{\"ref\":{\"type\":\"ref/prompt\",\"name\":\"nobody\"},\"argument\":{\"name\":\"a\",\"value\":\"\"}}}\n< {\"jsonrpc\":\"2.0\",\"id\":1,\"result\":{\"completion\":{\"values\":[]}}}"},
	},
	{
		ID: "probe/invalid-cursor", Severity: check.Warning,
		Title: "An unknown cursor gets a result",
		Why:   "A client with an expired cursor gets an arbitrary page, and its list has gaps or duplicates.",
		Fix:   "Respond with -32602 to unknown cursors.",
		URL:   "server/utilities/pagination#error-handling",
		Good:  check.Example{Revision: rev20251125, Text: "init server={\"tools\":{}}\n> {\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"tools/list\",\"params\":{\"cursor\":\"nobodys\"}}\n< {\"jsonrpc\":\"2.0\",\"id\":1,\"error\":{\"code\":-32602,\"message\":\"invalid cursor\"}}"},
		Bad:   check.Example{Revision: rev20251125, Text: "init server={\"tools\":{}}\n> {\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"tools/list\",\"params\":{\"cursor\":\"nobodys\"}}\n< {\"jsonrpc\":\"2.0\",\"id\":1,\"result\":{\"tools\":[]}}"},
	},
	{
		ID: "probe/invalid-level", Severity: check.Warning, Revisions: legacy,
		Title: "logging/setLevel accepts an unknown level",
		Why:   "The client assumes that the level is set.",
		Fix:   "Respond with -32602 to anything but the eight levels.",
		URL:   "server/utilities/logging#error-handling",
		Good:  check.Example{Revision: rev20251125, Text: "init server={\"logging\":{}}\n> {\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"logging/setLevel\",\"params\":{\"level\":\"loud\"}}\n< {\"jsonrpc\":\"2.0\",\"id\":1,\"error\":{\"code\":-32602,\"message\":\"invalid level\"}}"},
		Bad:   check.Example{Revision: rev20251125, Text: "init server={\"logging\":{}}\n> {\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"logging/setLevel\",\"params\":{\"level\":\"loud\"}}\n< {\"jsonrpc\":\"2.0\",\"id\":1,\"result\":{}}"},
	},
	{
		ID: "probe/failing", Severity: check.Warning,
		Title: "A valid request fails in the server",
		Why:   "The server may need something that is missing in this environment: the network, a login, a service. Its real response is unknown.",
		Fix:   "Read its standard error, and check the server again with everything it needs. A list that does not depend on a missing service should not fail.",
		URL:   "basic#responses",
		Good:  check.Example{Revision: rev20251125, Text: "init server={\"tools\":{}}\n> {\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"tools/list\"}\n< {\"jsonrpc\":\"2.0\",\"id\":1,\"result\":{\"tools\":[]}}"},
		Bad:   check.Example{Revision: rev20251125, Text: "init server={\"tools\":{}}\n> {\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"tools/list\"}\n< {\"jsonrpc\":\"2.0\",\"id\":1,\"error\":{\"code\":-32603,\"message\":\"fetch failed\"}}"},
	},
	{
		ID: "probe/refused", Severity: check.Error,
		Title: "A valid request is rejected",
		Why:   "The server has declared the capability for the request, or every server must support it, and clients rely on that.",
		Fix:   "Implement declared capabilities, or do not declare them.",
		URL:   "basic#responses",
		Good:  check.Example{Revision: rev20251125, Text: "init server={\"tools\":{}}\n> {\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"tools/list\"}\n< {\"jsonrpc\":\"2.0\",\"id\":1,\"result\":{\"tools\":[]}}"},
		Bad:   check.Example{Revision: rev20251125, Text: "init server={\"tools\":{}}\n> {\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"tools/list\"}\n< {\"jsonrpc\":\"2.0\",\"id\":1,\"error\":{\"code\":-32601,\"message\":\"method not found\"}}"},
	},
}

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
			if list := member(a.result, l.member); a.succeeded() && (len(list) == 0 || list[0] != '[') {
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
			if list := elements(member(a.result, l.member), 1); len(list) > 0 && d.firstEntries[l.member] == nil {
				d.firstEntries[l.member] = list[0]
			}
			cursor := member(a.result, "nextCursor")
			if a.empty = a.succeeded() && l.member == "tools" && params == nil && len(cursor) == 0 && len(elements(member(a.result, l.member), 1)) == 0 && a.list == ""; a.empty {
				d.noteFailure(l.method, &a)
			}
			if len(cursor) == 0 || cursor[0] != '"' {
				break
			}
			d.r.notePages()
			params = object{"cursor": textOf(cursor)}
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
	if rule, ok := check.Lookup(unknownAsResult); ok && a.succeeded() && string(member(a.result, "isError")) == "true" {
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
	if args := elements(member(prompt, "arguments"), 1); len(args) > 0 && d.conn.alive() {
		a := d.call(ctx, mcp.MethodComplete, object{"ref": ref(textOf(member(prompt, "name"))), "argument": object{"name": textOf(member(args[0], "name")), "value": ""}})
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
	if a, ok := d.stillAnswers(ctx); !ok {
		d.connectionEnded(&a, "an unknown notification")
	}
}

func cancelUnknown(ctx context.Context, d *driver) {
	if d.rev.Modern() && d.http != nil {
		// Over HTTP, closing the stream cancels.
		return
	}
	d.notify(ctx, mcp.NotificationCancelled, object{"requestId": "mcpwire-probe-nobodys", "reason": "a probe"})
	if a, ok := d.stillAnswers(ctx); !ok {
		d.connectionEnded(&a, "the cancellation of an unknown request")
	}
}

// rulesIDs are the rules about ids and large messages.
var rulesIDs = []check.Rule{
	{
		ID: "probe/id-huge", Severity: check.Info,
		Title: "A request with an id of more than 53 bits gets no response, or one with another id",
		Why:   "Clients that count from a large number, or use a hash as an id, wait forever. Therefore most count from 1.",
		Fix:   "Keep the text of ids, and do not parse them as floating-point numbers.",
		URL:   "basic#requests",
		Good:  check.Example{Revision: rev20251125, Text: "init\n> {\"jsonrpc\":\"2.0\",\"id\":9007199254740993,\"method\":\"ping\"}\n< {\"jsonrpc\":\"2.0\",\"id\":9007199254740993,\"result\":{}}"},
		Bad:   check.Example{Revision: rev20251125, Text: "init\n> {\"jsonrpc\":\"2.0\",\"id\":9007199254740993,\"method\":\"ping\"}\n< {\"jsonrpc\":\"2.0\",\"id\":9007199254740992,\"result\":{}}"},
	},
	{
		ID: "probe/large-message", Severity: check.Info,
		Title: "A request with an argument of 1 MiB fails",
		Why:   "Documents and images can have this size. The specification has no limit, and hosts do not expect one.",
		Fix:   "Allow several megabytes; reject more with an error.",
		URL:   "server/tools#calling-tools",
		Good:  check.Example{Revision: rev20251125, Text: "init server={\"tools\":{}}\n# the argument has 1 MiB\n> {\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"tools/call\",\"params\":{\"name\":\"nobody\",\"arguments\":{\"text\":\"xxx\"}}}\n< {\"jsonrpc\":\"2.0\",\"id\":1,\"error\":{\"code\":-32602,\"message\":\"unknown tool\"}}"},
		Bad:   check.Example{Revision: rev20251125, Text: "http\n# the argument has 1 MiB\npost {\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"tools/call\",\"params\":{\"name\":\"nobody\",\"arguments\":{\"text\":\"xxx\"}}}\nreply 413"},
	},
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
	response := func(m *jsonrpc.Message) bool { return m.Kind == jsonrpc.KindResponse || m.Kind == jsonrpc.KindError }
	wait := min(initializeDelay, d.r.opts.Timeout)
	if d.stdio != nil {
		// A response that takes much longer than another one will not come.
		usual, ok := d.stillAnswers(ctx)
		if !ok {
			return
		}
		wait = min(lateReplyTimeout+20*usual.took, wait)
	}
	a := d.send(ctx, outgoing{body: d.harmlessRequest(id), id: id, stopAt: response, wait: wait})
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

// rulesBatch are the rules about batches.
var rulesBatch = []check.Rule{
	{
		ID: "probe/batch", Severity: check.Warning, Revisions: hasBatches,
		Title: "A batch is rejected",
		Why:   "In this revision only, servers must accept several messages in an array. Very few clients send one.",
		Fix:   "Respond to all requests of the array, in an array.",
		URL:   "basic#batching",
		Good:  check.Example{Revision: rev20250326, Text: "init\n> [{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"ping\"}]\n< [{\"jsonrpc\":\"2.0\",\"id\":1,\"result\":{}}]"},
		Bad:   check.Example{Revision: rev20250326, Text: "init\n> [{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"ping\"}]\n< {\"jsonrpc\":\"2.0\",\"id\":null,\"error\":{\"code\":-32600,\"message\":\"no batches\"}}"},
	},
	{
		ID: "probe/batch-taken", Severity: check.Info, Revisions: lacksBatches,
		Title: "A batch is accepted in a revision without batches",
		Why:   "Other servers and proxies reject it. The specification does not say how to respond.",
		Fix:   "Respond with -32600 to an array.",
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
