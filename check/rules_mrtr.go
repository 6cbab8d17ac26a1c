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
type round struct {
	n     uint64 // number of the event
	id    string // of the request, canonical
	state []byte // JSON text of the requestState; nil if there was none
	kept  bool   // state was short enough to be kept
	keys  []string
	lost  bool // the keys are not all there
}

// rounds are what rules remember of the rounds in a session, by what was asked.
type rounds struct {
	by   map[uint64]askings
	lost bool // some requests were forgotten
}

// askings are the last rounds of requests that ask the same.
type askings struct {
	list []round
	lost bool // there were more
}

const (
	maxRounds    = 1024 // requests of a session
	maxPerAsking = 8    // rounds of the same request
	maxInputs    = 64
	maxState     = 16 << 10 // bytes
)

// asking hashes what stays the same in each round of a request.
func (v *view) asking(method string, params []byte) uint64 {
	var h maphash.Hash
	h.SetSeed(v.k.seed)
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

// observersMRTR remember rounds.
var observersMRTR = []observer{{
	kinds: kindResult, dir: capture.ToClient,
	observe: func(v *view) {
		if !v.inputRequired() || v.call.lost {
			return
		}
		r := round{n: v.e.N, id: canonical(v.call.id)}
		if state := v.result("requestState"); state != nil {
			r.kept = len(state) <= maxState && !v.hidden("/result/requestState")
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
		all := recall[rounds](&v.sess.state)
		if all.by == nil || len(all.by) >= maxRounds {
			all.lost = len(all.by) > 0
			all.by = map[uint64]askings{}
		}
		key := v.asking(v.call.method, v.call.params)
		a := all.by[key]
		a.list = append(a.list, r)
		if n := len(a.list) - maxPerAsking; n > 0 {
			a.list, a.lost = a.list[n:], true
		}
		all.by[key] = a
	},
}}

// inputRequired reports whether the message is a result that asks for input, of a request of a client.
func (v *view) inputRequired() bool {
	return v.modern && v.call != nil && v.call.dir == capture.ToServer && v.msg.is(kindResult) && text(v.result("resultType")) == mcp.ResultTypeInputRequired
}

// retries returns the rounds that a request may be the next of; ok is false if it is no retry. Where the same is asked many times at once, it may be the
// next of one that is not remembered any more: all is false then.
func (v *view) retries() (before []round, all, ok bool) {
	if v.param("inputResponses") == nil && v.param("requestState") == nil {
		return nil, true, false
	}
	known := recall[rounds](&v.sess.state)
	a := known.by[v.asking(v.msg.method, v.msg.params)]
	return a.list, !a.lost && !known.lost, true
}

// same reports whether a retry brings back the state of the round; it may be that nobody can tell.
func (r *round) same(state []byte) bool {
	if r.state == nil || state == nil {
		return r.state == nil && state == nil
	}
	return !r.kept || text(r.state) == text(state)
}

func asksInput(method string) bool {
	return method == mcp.MethodToolsCall || method == mcp.MethodPromptsGet || method == mcp.MethodResourcesRead
}

const (
	mrtrAsk   = `> {"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"a","_meta":{"io.modelcontextprotocol/protocolVersion":"$rev","io.modelcontextprotocol/clientCapabilities":{"elicitation":{},"roots":{}}}}}`
	mrtrInput = `< {"jsonrpc":"2.0","id":1,"result":{"resultType":"input_required","requestState":"s1","inputRequests":{"r":{"method":"roots/list"}}}}`
	mrtrDone  = `< {"jsonrpc":"2.0","id":2,"result":{"resultType":"complete","content":[]}}`
)

// mrtrRetry is the second round, with the id and the members that it is given.
func mrtrRetry(id, members string) string {
	return `> {"jsonrpc":"2.0","id":` + id + `,"method":"tools/call","params":{"name":"a",` + members + `,"_meta":{"io.modelcontextprotocol/protocolVersion":"$rev","io.modelcontextprotocol/clientCapabilities":{"elicitation":{},"roots":{}}}}}`
}

func mrtrExample(retry string) Example {
	return Example{r5, mrtrAsk + "\n" + mrtrInput + "\n" + retry + "\n" + mrtrDone}
}

const mrtrGood = `"inputResponses":{"r":{"roots":[]}},"requestState":"s1"`

// rulesMRTR are the rules about rounds.
var rulesMRTR = []rule{
	{
		Rule: Rule{
			ID: "mrtr/unexpected", Severity: Error, Revisions: modern,
			Title: "A request is answered with a question that must not have one",
			Why:   "Clients take the result for invalid: only tools/call, prompts/get and resources/read may need input.",
			Fix:   "Ask within the answer to tools/call, prompts/get or resources/read.",
			URL:   "basic/patterns/mrtr",
			Good:  mrtrExample(mrtrRetry("2", mrtrGood)),
			Bad:   Example{r5, `> {"jsonrpc":"2.0","id":1,"method":"completion/complete","params":{"ref":{"type":"ref/prompt","name":"a"},"argument":{"name":"x","value":""},"_meta":{"io.modelcontextprotocol/protocolVersion":"$rev","io.modelcontextprotocol/clientCapabilities":{"roots":{}}}}}` + "\n" + mrtrInput},
		},
		kinds: kindResult, dir: capture.ToClient,
		check: func(v *view) {
			if v.inputRequired() && !asksInput(v.call.method) {
				v.report("/result/resultType", "%s is answered with input_required", show(v.call.method))
			}
		},
	},
	{
		Rule: Rule{
			ID: "mrtr/question-kind", Severity: Error, Revisions: modern,
			Title: "The server asks for something that there is not",
			Why:   "No client can answer it.",
			Fix:   "Ask by elicitation/create, sampling/createMessage or roots/list.",
			URL:   "basic/patterns/mrtr",
			Good:  mrtrExample(mrtrRetry("2", mrtrGood)),
			Bad:   Example{r5, mrtrAsk + "\n" + `< {"jsonrpc":"2.0","id":1,"result":{"resultType":"input_required","requestState":"s1","inputRequests":{"r":{"method":"user/ask","params":{}}}}}`},
		},
		kinds: kindResult, dir: capture.ToClient,
		check: func(v *view) {
			if !v.inputRequired() {
				return
			}
			for key, q := range members(v.result("inputRequests")) {
				switch m := text(member(q, "method")); m {
				case mcp.MethodElicit, mcp.MethodCreateMessage, mcp.MethodRootsList:
				default:
					v.report(pointer("result", "inputRequests", key, "method"), "input is asked for by %s", show(m))
				}
			}
		},
	},
	{
		Rule: Rule{
			ID: "mrtr/undeclared", Severity: Error, Revisions: modern,
			Title: "The server asks for something that the client has not declared",
			Why:   "The client cannot answer, and the call cannot go on.",
			Fix:   "Look at the clientCapabilities of the request; if what is needed is not there, answer -32021.",
			URL:   "basic/patterns/mrtr",
			Good:  mrtrExample(mrtrRetry("2", mrtrGood)),
			Bad:   Example{r5, mrtrAsk + "\n" + `< {"jsonrpc":"2.0","id":1,"result":{"resultType":"input_required","requestState":"s1","inputRequests":{"u":{"method":"elicitation/create","params":{"mode":"url","message":"log in","url":"https://example.com/"}}}}}`},
		},
		kinds: kindResult, dir: capture.ToClient,
		check: func(v *view) {
			if !v.inputRequired() || v.call.client == nil {
				return
			}
			for key, q := range members(v.result("inputRequests")) {
				if need := undeclared(v.call.client, q); need != "" {
					v.report(pointer("result", "inputRequests", key), "this needs the capability %s of the client, which the request does not declare", need).with(v.call.n)
				}
			}
		},
	},
	{
		Rule: Rule{
			ID: "mrtr/state-changed", Severity: Error, Revisions: modern,
			Title: "A retry does not bring back the requestState as it was",
			Why:   "The state is sealed; a server refuses one that is different, and without it does not know what the answers are for.",
			Fix:   "Send the requestState of the result that asked, byte for byte, and none if there was none.",
			URL:   "basic/patterns/mrtr",
			Good:  mrtrExample(mrtrRetry("2", mrtrGood)),
			Bad:   mrtrExample(mrtrRetry("2", `"inputResponses":{"r":{"roots":[]}},"requestState":"s2"`)),
		},
		kinds: kindRequest, dir: capture.ToServer,
		check: func(v *view) {
			before, all, ok := v.retries()
			state := v.param("requestState")
			if !ok || !all || len(before) == 0 || v.hidden("/params/requestState") {
				return
			}
			for i := range before {
				if before[i].same(state) {
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
			ID: "mrtr/answer-missing", Severity: Error, Revisions: modern,
			Title: "A retry leaves a question unanswered",
			Why:   "The server asks again, and again.",
			Fix:   "Answer each key of inputRequests; decline or cancel are answers, too. If there is none, do not send the request again.",
			URL:   "basic/patterns/mrtr",
			Good:  mrtrExample(mrtrRetry("2", mrtrGood)),
			Bad:   mrtrExample(mrtrRetry("2", `"inputResponses":{},"requestState":"s1"`)),
		},
		kinds: kindRequest, dir: capture.ToServer,
		check: func(v *view) {
			before, all, ok := v.retries()
			if state := v.param("requestState"); state != nil && !v.hidden("/params/requestState") { // it says which round is answered
				before = slices.DeleteFunc(slices.Clone(before), func(r round) bool { return !r.same(state) })
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
			ID: "mrtr/same-id", Severity: Error, Revisions: modern,
			Title: "A retry has the id of the request before",
			Why:   "Whoever follows the traffic takes the second answer for the first.",
			Fix:   "Give the retry an id of its own: it is a request of its own.",
			URL:   "basic/patterns/mrtr",
			Good:  mrtrExample(mrtrRetry("2", mrtrGood)),
			Bad:   Example{r5, mrtrAsk + "\n" + mrtrInput + "\n" + mrtrRetry("1", mrtrGood) + "\n" + `< {"jsonrpc":"2.0","id":1,"result":{"resultType":"complete","content":[]}}`},
		},
		kinds: kindRequest, dir: capture.ToServer,
		check: func(v *view) {
			before, _, ok := v.retries()
			if !ok || !v.sess.certain && v.sess.carrier != carrierHTTP {
				return
			}
			for _, r := range before {
				if r.id == canonical(v.msg.id) && (v.sess.certain || r.kept && text(r.state) == text(v.param("requestState"))) {
					v.report("/id", "this retry has the id of the request that the question answered").with(r.n)
					return
				}
			}
		},
	},
	{
		Rule: Rule{
			ID: "mrtr/no-round", Severity: Error, Revisions: modern,
			Title: "A request brings answers to questions that were not asked",
			Why:   "Answers belong to one request; with another one they say something the user did not mean.",
			Fix:   "Send inputResponses and requestState with the retry of the request that they are for, whose params are otherwise the same, and with nothing else.",
			URL:   "basic/patterns/mrtr",
			Good:  mrtrExample(mrtrRetry("2", mrtrGood)),
			Bad:   Example{r5, mrtrRetry("1", mrtrGood) + "\n" + `< {"jsonrpc":"2.0","id":1,"result":{"resultType":"complete","content":[]}}`},
		},
		kinds: kindRequest, dir: capture.ToServer,
		check: func(v *view) {
			before, all, ok := v.retries()
			if ok && all && asksInput(v.msg.method) && len(before) == 0 && v.sess.whole() && len(v.hiddenPlaces()) == 0 && v.sess.carrier == carrierStdio {
				v.report("", "this request has inputResponses or a requestState, and no request with these params was answered with a question")
			}
		},
	},
}

// undeclared returns the capability that a question needs and the client does not have, "" if there is none.
func undeclared(client, question []byte) string {
	params := member(question, "params")
	switch text(member(question, "method")) {
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
		switch mode := text(member(params, "mode")); {
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
