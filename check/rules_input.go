package check

import (
	"hash/maphash"
	"slices"

	"mcpwire/capture"
	"mcpwire/internal/era"
	"mcpwire/internal/json/jsonwire"
	"mcpwire/mcp"
)

// Since 2026-07-28 a server requests input within a result, and the client repeats its request with
// the input (https://modelcontextprotocol.io/specification/2026-07-28/basic/patterns/mrtr).

// An inputRound is an input_required result of a request.
type inputRound struct {
	// n is the number of the event.
	n uint64
	// id is the canonical id of the request.
	id string
	// state is the JSON text of the requestState, or nil if there was none.
	state []byte
	// kept reports that state was short enough to keep.
	kept bool
	// keys has at most maxInputs keys.
	keys []string
}

// inputRounds holds the input rounds of a session, by requestHash.
type inputRounds struct {
	byRequest map[uint64]inputHistory
	// lost reports that requests were dropped.
	lost bool
}

// An inputHistory holds the last rounds of equal requests.
type inputHistory struct {
	list []inputRound
	// lost reports that rounds were dropped.
	lost bool
}

const (
	maxRounds     = 1024 // requests of a session
	maxPerRequest = 8    // rounds of one request
	maxInputs     = 64
	maxState      = 16 << 10 // bytes
)

// requestHash hashes the parts of a request that stay the same in each round.
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

// observersInput records input rounds.
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
				break
			}
			r.keys = append(r.keys, key)
		}
		all := stateOf[inputRounds](&v.session.state)
		key := v.requestHash(v.call.method, v.call.params)
		a := all.byRequest[key]
		a.list = append(a.list, r)
		if n := len(a.list) - maxPerRequest; n > 0 {
			a.list, a.lost = a.list[n:], true
		}
		all.lost = all.lost || len(all.byRequest) >= maxRounds
		setBounded(&all.byRequest, maxRounds, key, a)
	},
}}

// inputRequired reports whether the message is an input_required result for the client.
func (v *view) inputRequired() bool {
	return v.modern && v.call != nil && v.call.dir == capture.ToServer && v.msg.is(kindResult) && jsonwire.Text(v.result("resultType")) == string(mcp.ResultTypeInputRequired)
}

// previousRounds returns the rounds that a request may continue. ok is false if it is not a retry.
// all is false if rounds were dropped, so that the request may continue another one.
func (v *view) previousRounds() (before []inputRound, all, ok bool) {
	if v.param("inputResponses") == nil && v.param("requestState") == nil {
		return nil, true, false
	}
	known := stateOf[inputRounds](&v.session.state)
	a := known.byRequest[v.requestHash(v.msg.method, v.msg.params)]
	return a.list, !a.lost && !known.lost, true
}

// sameState reports whether a retry returns the state of the round. It is true if that is unknown.
func (r *inputRound) sameState(state []byte) bool {
	if r.state == nil || state == nil {
		return r.state == nil && state == nil
	}
	return !r.kept || jsonwire.Text(r.state) == jsonwire.Text(state)
}

const (
	exInputCall     = `> {"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"a","_meta":{"io.modelcontextprotocol/protocolVersion":"$rev","io.modelcontextprotocol/clientCapabilities":{"elicitation":{},"roots":{}}}}}`
	exInputRequired = `< {"jsonrpc":"2.0","id":1,"result":{"resultType":"input_required","requestState":"s1","inputRequests":{"r":{"method":"roots/list"}}}}`
	exInputDone     = `< {"jsonrpc":"2.0","id":2,"result":{"resultType":"complete","content":[]}}`
)

// exInputRetry returns the request of a second round.
func exInputRetry(id, members string) string {
	return `> {"jsonrpc":"2.0","id":` + id + `,"method":"tools/call","params":{"name":"a",` + members + `,"_meta":{"io.modelcontextprotocol/protocolVersion":"$rev","io.modelcontextprotocol/clientCapabilities":{"elicitation":{},"roots":{}}}}}`
}

func exInput(retry string) Example {
	return Example{rev20260728, exInputCall + "\n" + exInputRequired + "\n" + retry + "\n" + exInputDone}
}

const exInputGood = `"inputResponses":{"r":{"roots":[]}},"requestState":"s1"`

// rulesInput returns the rules about input rounds.
func rulesInput() []rule {
	return []rule{{
		ID: "mrtr/unexpected", Severity: Error, Revisions: modernRevisions,
		Title: "An input_required result to a request that does not allow it",
		Why:   "Clients treat the result as invalid: only tools/call, prompts/get and resources/read may require input.",
		Fix:   "Send input requests only in results of tools/call, prompts/get and resources/read.",
		URL:   "basic/patterns/mrtr",
		Good:  exInput(exInputRetry("2", exInputGood)),
		Bad:   Example{rev20260728, `> {"jsonrpc":"2.0","id":1,"method":"completion/complete","params":{"ref":{"type":"ref/prompt","name":"a"},"argument":{"name":"x","value":""},"_meta":{"io.modelcontextprotocol/protocolVersion":"$rev","io.modelcontextprotocol/clientCapabilities":{"roots":{}}}}}` + "\n" + exInputRequired},
		kinds: kindResult, dir: capture.ToClient,
		check: func(v *view) {
			if v.inputRequired() && !era.AllowsInput(v.call.method) {
				v.report("/result/resultType", "the result of %s has resultType input_required", show(v.call.method))
			}
		},
	}, {
		ID: "mrtr/question-kind", Severity: Error, Revisions: modernRevisions,
		Title: "The method of an input request is unknown",
		Why:   "No client can handle it.",
		Fix:   "Use elicitation/create, sampling/createMessage or roots/list.",
		URL:   "basic/patterns/mrtr",
		Good:  exInput(exInputRetry("2", exInputGood)),
		Bad:   Example{rev20260728, exInputCall + "\n" + `< {"jsonrpc":"2.0","id":1,"result":{"resultType":"input_required","requestState":"s1","inputRequests":{"r":{"method":"user/ask","params":{}}}}}`},
		kinds: kindResult, dir: capture.ToClient,
		check: func(v *view) {
			if !v.inputRequired() {
				return
			}
			for key, q := range members(v.result("inputRequests")) {
				if m := jsonwire.Text(jsonwire.Lookup(q, "method")); !era.IsInputRequest(m) {
					v.report(pointer("result", "inputRequests", key, "method"), "the method of the input request is %s", show(m))
				}
			}
		},
	}, {
		ID: "mrtr/undeclared", Severity: Error, Revisions: modernRevisions,
		Title: "An input request needs a capability that the client has not declared",
		Why:   "The client cannot respond, and the call cannot continue.",
		Fix:   "Check the clientCapabilities of the request; if a required capability is missing, respond with -32021.",
		URL:   "basic/patterns/mrtr",
		Good:  exInput(exInputRetry("2", exInputGood)),
		Bad:   Example{rev20260728, exInputCall + "\n" + `< {"jsonrpc":"2.0","id":1,"result":{"resultType":"input_required","requestState":"s1","inputRequests":{"u":{"method":"elicitation/create","params":{"mode":"url","message":"log in","url":"https://example.com/"}}}}}`},
		kinds: kindResult, dir: capture.ToClient,
		check: func(v *view) {
			if !v.inputRequired() || v.call.client == nil {
				return
			}
			for key, q := range members(v.result("inputRequests")) {
				if need := undeclaredByClient(jsonwire.Text(jsonwire.Lookup(q, "method")), jsonwire.Lookup(q, "params"), v.call.client); need != nil {
					v.report(pointer("result", "inputRequests", key), "this input request needs the client capability %s, which the request does not declare", dotted(need)).with(v.call.n)
				}
			}
		},
	}, {
		ID: "mrtr/state-changed", Severity: Error, Revisions: modernRevisions,
		Title: "A retry does not repeat the requestState",
		Why:   "The state is sealed; a server rejects a changed one, and without it does not know what the responses are for.",
		Fix:   "Send the requestState of the input_required result, byte for byte, and none if it had none.",
		URL:   "basic/patterns/mrtr",
		Good:  exInput(exInputRetry("2", exInputGood)),
		Bad:   exInput(exInputRetry("2", `"inputResponses":{"r":{"roots":[]}},"requestState":"s2"`)),
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
				v.report("", "this retry has no requestState, but the input_required result had one").with(last.n)
			case last.state == nil:
				v.report("/params/requestState", "this retry has a requestState, but the input_required result had none").with(last.n)
			default:
				v.report("/params/requestState", "the requestState is %s, but the input_required result had %s", showJSON(state), showJSON(last.state)).with(last.n)
			}
		},
	}, {
		ID: "mrtr/answer-missing", Severity: Error, Revisions: modernRevisions,
		Title: "A retry has no response to an input request",
		Why:   "The server sends the same input request again and again.",
		Fix:   "Respond to each key of inputRequests; decline and cancel are valid responses. If there is no response, do not send the request again.",
		URL:   "basic/patterns/mrtr",
		Good:  exInput(exInputRetry("2", exInputGood)),
		Bad:   exInput(exInputRetry("2", `"inputResponses":{},"requestState":"s1"`)),
		kinds: kindRequest, dir: capture.ToServer,
		check: func(v *view) {
			before, all, ok := v.previousRounds()
			// The state identifies the round.
			if state := v.param("requestState"); state != nil && !v.redacted("/params/requestState") {
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
			v.report("", "the input request %s has no response in inputResponses", show(missing)).with(before[len(before)-1].n)
		},
	}, {
		ID: "mrtr/same-id", Severity: Error, Revisions: modernRevisions,
		Title: "A retry reuses the id of the previous request",
		Why:   "Programs that follow the traffic mistake the second response for the first.",
		Fix:   "Give the retry a new id: it is a separate request.",
		URL:   "basic/patterns/mrtr",
		Good:  exInput(exInputRetry("2", exInputGood)),
		Bad:   Example{rev20260728, exInputCall + "\n" + exInputRequired + "\n" + exInputRetry("1", exInputGood) + "\n" + `< {"jsonrpc":"2.0","id":1,"result":{"resultType":"complete","content":[]}}`},
		kinds: kindRequest, dir: capture.ToServer,
		check: func(v *view) {
			before, _, ok := v.previousRounds()
			if !ok || !v.session.certain && v.session.transport != transportHTTP {
				return
			}
			for _, r := range before {
				if r.id == idKey(v.msg.id) && (v.session.certain || r.kept && jsonwire.Text(r.state) == jsonwire.Text(v.param("requestState"))) {
					v.report("/id", "this retry has the id of the request that got the input_required result").with(r.n)
					return
				}
			}
		},
	}, {
		ID: "mrtr/no-round", Severity: Error, Revisions: modernRevisions,
		Title: "A request has responses to input requests that were not sent",
		Why:   "Responses belong to one request; with another request they mean something that the user did not intend.",
		Fix:   "Send inputResponses and requestState only with the retry of their request, with otherwise identical params.",
		URL:   "basic/patterns/mrtr",
		Good:  exInput(exInputRetry("2", exInputGood)),
		Bad:   Example{rev20260728, exInputRetry("1", exInputGood) + "\n" + `< {"jsonrpc":"2.0","id":1,"result":{"resultType":"complete","content":[]}}`},
		kinds: kindRequest, dir: capture.ToServer,
		check: func(v *view) {
			before, all, ok := v.previousRounds()
			if ok && all && era.AllowsInput(v.msg.method) && len(before) == 0 && v.session.complete() && len(v.redactedPlaces()) == 0 && v.session.transport == transportStdio {
				v.report("", "this request has inputResponses or a requestState, but no request with these params got an input_required result")
			}
		},
	}}
}
