package check

import (
	"hash/maphash"
	"slices"

	"mcpwire/capture"
	"mcpwire/mcp"
)

// Since 2026-07-28 a server asks for input within a result, and the client sends its request again with what it was asked for
// (https://modelcontextprotocol.io/specification/2026-07-28/basic/patterns/mrtr).

// A round is an input_required result that a request has got.
type inputRound struct {
	n     uint64 // number of the event
	id    string // of the request, canonical
	state []byte // JSON text of the requestState; nil if there was none
	kept  bool   // state was short enough to be kept
	keys  []string
	lost  bool // the keys are not all there
}

// inputRounds are what rules remember of the rounds in a session, by what was asked.
type inputRounds struct {
	byRequest map[uint64]inputHistory
	lost      bool // some requests were forgotten
}

// inputHistory are the last rounds of requests that ask the same.
type inputHistory struct {
	list []inputRound
	lost bool // there were more
}

const (
	maxRounds     = 1024 // requests of a session
	maxPerRequest = 8    // rounds of the same request
	maxInputs     = 64
	maxState      = 16 << 10 // bytes
)

// requestHash hashes what stays the same in each round of a request.
func (v *view) requestHash(method string, params []byte) uint64 {
	var h maphash.Hash
	h.SetSeed(v.checker.seed)
	h.WriteString(method)
	for name, value := range members(params) {
		if name != "_meta" && name != "inputResponses" && name != "requestState" {
			h.WriteString(name)
			h.WriteByte(0)
			h.Write(value)
			h.WriteByte(0)
		}
	}
	return h.Sum64()
}

// observersInput remember rounds.
var observersInput = []observer{{
	kinds: kindResult, dir: capture.ToClient,
	observe: func(v *view) {
		if !v.inputRequired() || v.call.paramsLost {
			return
		}
		r := inputRound{n: v.e.N, id: idKey(v.call.id)}
		if state := v.result("requestState"); state != nil {
			r.kept = len(state) <= maxState && !v.redacted("/result/requestState")
			r.state = []byte{}
			if r.kept {
				r.state = slices.Clone(state)
			}
		}
		for key := range members(v.result("inputRequests")) {
			if len(r.keys) >= maxInputs || len(key) > maxPairedID {
				r.lost = true
				break
			}
			r.keys = append(r.keys, key)
		}
		all := stateOf[inputRounds](&v.session.state)
		if all.byRequest == nil || len(all.byRequest) >= maxRounds {
			all.lost = len(all.byRequest) > 0
			all.byRequest = map[uint64]inputHistory{}
		}
		key := v.requestHash(v.call.method, v.call.params)
		a := all.byRequest[key]
		a.list = append(a.list, r)
		if n := len(a.list) - maxPerRequest; n > 0 {
			a.list, a.lost = a.list[n:], true
		}
		all.byRequest[key] = a
	},
}}

// inputRequired reports whether the message is a result that asks for input, of a request of a client.
func (v *view) inputRequired() bool {
	return v.modern && v.call != nil && v.call.dir == capture.ToServer && v.msg.is(kindResult) && stringValue(v.result("resultType")) == mcp.ResultTypeInputRequired
}

// previousRounds returns the rounds that a request may be the next of; ok is false if it is no retry. Where the same is asked many times at once, it may be the
// next of one that is not remembered any more: all is false then.
func (v *view) previousRounds() (before []inputRound, all, ok bool) {
	if v.param("inputResponses") == nil && v.param("requestState") == nil {
		return nil, true, false
	}
	known := stateOf[inputRounds](&v.session.state)
	a := known.byRequest[v.requestHash(v.msg.method, v.msg.params)]
	return a.list, !a.lost && !known.lost, true
}

// sameState reports whether a retry brings back the state of the round; it may be that nobody can tell.
func (r *inputRound) sameState(state []byte) bool {
	if r.state == nil || state == nil {
		return r.state == nil && state == nil
	}
	return !r.kept || stringValue(r.state) == stringValue(state)
}

func allowsInput(method string) bool {
	return method == mcp.MethodToolsCall || method == mcp.MethodPromptsGet || method == mcp.MethodResourcesRead
}

const (
	exInputCall     = `> {"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"a","_meta":{"io.modelcontextprotocol/protocolVersion":"$rev","io.modelcontextprotocol/clientCapabilities":{"elicitation":{},"roots":{}}}}}`
	exInputRequired = `< {"jsonrpc":"2.0","id":1,"result":{"resultType":"input_required","requestState":"s1","inputRequests":{"r":{"method":"roots/list"}}}}`
	exInputDone     = `< {"jsonrpc":"2.0","id":2,"result":{"resultType":"complete","content":[]}}`
)

// exInputRetry is the second round, with the id and the members that it is given.
func exInputRetry(id, members string) string {
	return `> {"jsonrpc":"2.0","id":` + id + `,"method":"tools/call","params":{"name":"a",` + members + `,"_meta":{"io.modelcontextprotocol/protocolVersion":"$rev","io.modelcontextprotocol/clientCapabilities":{"elicitation":{},"roots":{}}}}}`
}

func exInput(retry string) Example {
	return Example{rev20260728, exInputCall + "\n" + exInputRequired + "\n" + retry + "\n" + exInputDone}
}

const exInputGood = `"inputResponses":{"r":{"roots":[]}},"requestState":"s1"`

// rulesInput are the rules about rounds.
var rulesInput = []rule{
	{
		Rule: Rule{
			ID: "mrtr/unexpected", Severity: Error, Revisions: modernRevisions,
			Title: "A request is answered with a question that must not have one",
			Why:   "Clients take the result for invalid: only tools/call, prompts/get and resources/read may need input.",
			Fix:   "Ask within the answer to tools/call, prompts/get or resources/read.",
			URL:   "basic/patterns/mrtr",
			Good:  exInput(exInputRetry("2", exInputGood)),
			Bad:   Example{rev20260728, `> {"jsonrpc":"2.0","id":1,"method":"completion/complete","params":{"ref":{"type":"ref/prompt","name":"a"},"argument":{"name":"x","value":""},"_meta":{"io.modelcontextprotocol/protocolVersion":"$rev","io.modelcontextprotocol/clientCapabilities":{"roots":{}}}}}` + "\n" + exInputRequired},
		},
		kinds: kindResult, dir: capture.ToClient,
		check: func(v *view) {
			if v.inputRequired() && !allowsInput(v.call.method) {
				v.report("/result/resultType", "%s is answered with input_required", show(v.call.method))
			}
		},
	},
	{
		Rule: Rule{
			ID: "mrtr/question-kind", Severity: Error, Revisions: modernRevisions,
			Title: "The server asks for something that there is not",
			Why:   "No client can answer it.",
			Fix:   "Ask by elicitation/create, sampling/createMessage or roots/list.",
			URL:   "basic/patterns/mrtr",
			Good:  exInput(exInputRetry("2", exInputGood)),
			Bad:   Example{rev20260728, exInputCall + "\n" + `< {"jsonrpc":"2.0","id":1,"result":{"resultType":"input_required","requestState":"s1","inputRequests":{"r":{"method":"user/ask","params":{}}}}}`},
		},
		kinds: kindResult, dir: capture.ToClient,
		check: func(v *view) {
			if !v.inputRequired() {
				return
			}
			for key, q := range members(v.result("inputRequests")) {
				switch m := stringValue(member(q, "method")); m {
				case mcp.MethodElicit, mcp.MethodCreateMessage, mcp.MethodRootsList:
				default:
					v.report(pointer("result", "inputRequests", key, "method"), "input is asked for by %s", show(m))
				}
			}
		},
	},
	{
		Rule: Rule{
			ID: "mrtr/undeclared", Severity: Error, Revisions: modernRevisions,
			Title: "The server asks for something that the client has not declared",
			Why:   "The client cannot answer, and the call cannot go on.",
			Fix:   "Look at the clientCapabilities of the request; if what is needed is not there, answer -32021.",
			URL:   "basic/patterns/mrtr",
			Good:  exInput(exInputRetry("2", exInputGood)),
			Bad:   Example{rev20260728, exInputCall + "\n" + `< {"jsonrpc":"2.0","id":1,"result":{"resultType":"input_required","requestState":"s1","inputRequests":{"u":{"method":"elicitation/create","params":{"mode":"url","message":"log in","url":"https://example.com/"}}}}}`},
		},
		kinds: kindResult, dir: capture.ToClient,
		check: func(v *view) {
			if !v.inputRequired() || v.call.client == nil {
				return
			}
			for key, q := range members(v.result("inputRequests")) {
				if need := undeclaredInput(v.call.client, q); need != "" {
					v.report(pointer("result", "inputRequests", key), "this needs the capability %s of the client, which the request does not declare", need).with(v.call.n)
				}
			}
		},
	},
	{
		Rule: Rule{
			ID: "mrtr/state-changed", Severity: Error, Revisions: modernRevisions,
			Title: "A retry does not bring back the requestState as it was",
			Why:   "The state is sealed; a server refuses one that is different, and without it does not know what the answers are for.",
			Fix:   "Send the requestState of the result that asked, byte for byte, and none if there was none.",
			URL:   "basic/patterns/mrtr",
			Good:  exInput(exInputRetry("2", exInputGood)),
			Bad:   exInput(exInputRetry("2", `"inputResponses":{"r":{"roots":[]}},"requestState":"s2"`)),
		},
		kinds: kindRequest, dir: capture.ToServer,
		check: func(v *view) {
			before, all, ok := v.previousRounds()
			state := v.param("requestState")
			if !ok || !all || len(before) == 0 || v.redacted("/params/requestState") {
				return
			}
			for i := range before {
				if before[i].sameState(state) {
					return
				}
			}
			last := before[len(before)-1]
			switch {
			case state == nil:
				v.report("", "this retry has no requestState; the result that asked had one").with(last.n)
			case last.state == nil:
				v.report("/params/requestState", "this retry has a requestState; the result that asked had none").with(last.n)
			default:
				v.report("/params/requestState", "the requestState is %s, the result that asked had %s", showJSON(state), showJSON(last.state)).with(last.n)
			}
		},
	},
	{
		Rule: Rule{
			ID: "mrtr/answer-missing", Severity: Error, Revisions: modernRevisions,
			Title: "A retry leaves a question unanswered",
			Why:   "The server asks again, and again.",
			Fix:   "Answer each key of inputRequests; decline or cancel are answers, too. If there is none, do not send the request again.",
			URL:   "basic/patterns/mrtr",
			Good:  exInput(exInputRetry("2", exInputGood)),
			Bad:   exInput(exInputRetry("2", `"inputResponses":{},"requestState":"s1"`)),
		},
		kinds: kindRequest, dir: capture.ToServer,
		check: func(v *view) {
			before, all, ok := v.previousRounds()
			if state := v.param("requestState"); state != nil && !v.redacted("/params/requestState") { // it says which round is answered
				before = slices.DeleteFunc(slices.Clone(before), func(r inputRound) bool { return !r.sameState(state) })
			} else if !all {
				return
			}
			if !ok || len(before) == 0 {
				return
			}
			var missing string
			answered := map[string]bool{}
			for key := range members(v.param("inputResponses")) {
				answered[key] = true
			}
			for _, r := range before {
				missing = ""
				for _, key := range r.keys {
					if !answered[key] {
						missing = key
					}
				}
				if missing == "" {
					return
				}
			}
			v.report("", "the question %s has no answer in inputResponses", show(missing)).with(before[len(before)-1].n)
		},
	},
	{
		Rule: Rule{
			ID: "mrtr/same-id", Severity: Error, Revisions: modernRevisions,
			Title: "A retry has the id of the request before",
			Why:   "Whoever follows the traffic takes the second answer for the first.",
			Fix:   "Give the retry an id of its own: it is a request of its own.",
			URL:   "basic/patterns/mrtr",
			Good:  exInput(exInputRetry("2", exInputGood)),
			Bad:   Example{rev20260728, exInputCall + "\n" + exInputRequired + "\n" + exInputRetry("1", exInputGood) + "\n" + `< {"jsonrpc":"2.0","id":1,"result":{"resultType":"complete","content":[]}}`},
		},
		kinds: kindRequest, dir: capture.ToServer,
		check: func(v *view) {
			before, _, ok := v.previousRounds()
			if !ok || !v.session.certain && v.session.transport != transportHTTP {
				return
			}
			for _, r := range before {
				if r.id == idKey(v.msg.id) && (v.session.certain || r.kept && stringValue(r.state) == stringValue(v.param("requestState"))) {
					v.report("/id", "this retry has the id of the request that the question answered").with(r.n)
					return
				}
			}
		},
	},
	{
		Rule: Rule{
			ID: "mrtr/no-round", Severity: Error, Revisions: modernRevisions,
			Title: "A request brings answers to questions that were not asked",
			Why:   "Answers belong to one request; with another one they say something the user did not mean.",
			Fix:   "Send inputResponses and requestState with the retry of the request that they are for, whose params are otherwise the same, and with nothing else.",
			URL:   "basic/patterns/mrtr",
			Good:  exInput(exInputRetry("2", exInputGood)),
			Bad:   Example{rev20260728, exInputRetry("1", exInputGood) + "\n" + `< {"jsonrpc":"2.0","id":1,"result":{"resultType":"complete","content":[]}}`},
		},
		kinds: kindRequest, dir: capture.ToServer,
		check: func(v *view) {
			before, all, ok := v.previousRounds()
			if ok && all && allowsInput(v.msg.method) && len(before) == 0 && v.session.complete() && len(v.redactedPlaces()) == 0 && v.session.transport == transportStdio {
				v.report("", "this request has inputResponses or a requestState, and no request with these params was answered with a question")
			}
		},
	},
}

// undeclaredInput returns the capability that a question needs and the client does not have, "" if there is none.
func undeclaredInput(client, question []byte) string {
	params := member(question, "params")
	switch stringValue(member(question, "method")) {
	case mcp.MethodRootsList:
		if member(client, "roots") == nil {
			return "roots"
		}
	case mcp.MethodCreateMessage:
		sampling := member(client, "sampling")
		switch {
		case sampling == nil:
			return "sampling"
		case (member(params, "tools") != nil || member(params, "toolChoice") != nil) && member(sampling, "tools") == nil:
			return "sampling.tools"
		}
	case mcp.MethodElicit:
		elicitation := member(client, "elicitation")
		form, url := member(elicitation, "form"), member(elicitation, "url")
		switch mode := stringValue(member(params, "mode")); {
		case elicitation == nil:
			return "elicitation"
		case mode == "url" && url == nil:
			return "elicitation.url"
		case mode != "url" && form == nil && url != nil:
			return "elicitation.form"
		}
	}
	return ""
}
