package translate

import (
	"bytes"
	"maps"
	"slices"

	"mcpwire/internal/base/sparse"
	"mcpwire/internal/era"
	"mcpwire/internal/json/jsonwire"
	"mcpwire/internal/rpc"
	"mcpwire/jsonrpc"
	"mcpwire/mcp"
)

// A legacyRequest is a request of the legacy client.
type legacyRequest struct {
	request
	key    string
	stream uint64
	// params are as received, or nil.
	params []byte
	batch  *batch
	// progress is the last progress that the client got.
	progress float64
	// callID is the pending call for the request, or 0.
	callID int64

	inputRound    int
	inputRequests []*inputRequest
	// causes are the events of the responses to inputRequests.
	causes []uint64
	// pendingInputs counts the input requests without a response.
	pendingInputs int
	// inputResponses and requestState are the params of the next round.
	inputResponses []byte
	requestState   []byte
	elicitationIDs []string
	retryTimer     *timer

	taskMode taskMode
	// hiddenTaskID is the task that the request became, unknown to the client.
	hiddenTaskID string
}

// A legacyRequests holds the pending requests of the legacy client.
type legacyRequests struct {
	*core
	handshake *legacyHandshake
	inputs    *legacyInputs
	// byKey holds the requests by the key of their ids.
	byKey map[string]*legacyRequest
}

// add adds a request of the client, which came in a batch if b is not nil. It returns nil if it has
// rejected the request.
func (lr *legacyRequests) add(m *jsonrpc.Message, stream uint64, b *batch) *legacyRequest {
	r := &legacyRequest{
		request: request{id: m.ID.Clone(), method: string(m.Method), size: len(m.Params) + 2*len(m.ID), cause: lr.cause},
		key:     m.ID.Key(), stream: stream, batch: b,
	}
	if b != nil {
		b.pending++
	}
	if lr.byKey[r.key] != nil {
		r.finished = true
		lr.send(r, jsonrpc.AppendError(nil, r.id, jsonrpc.Errorf(jsonrpc.CodeInvalidRequest, "invalid request: a request with this id is in flight"), false), "")
		return nil
	}
	if len(lr.byKey) >= lr.opts.Limits.Requests || !lr.reserve(r.size) {
		r.finished = true
		lr.send(r, jsonrpc.AppendError(nil, r.id, errOverloaded, false), "refused")
		return nil
	}
	sparse.Set(&lr.byKey, r.key, r)
	if m.Params != nil {
		r.params = bytes.Clone(m.Params)
	}
	ex, err := lr.handshake.session.Open(&rpc.Request{Message: *m})
	if err != nil {
		lr.fail(r, jsonrpc.ErrorOf(err), "")
		return nil
	}
	if len(ex.Meta.ProgressToken) > 0 {
		r.progressToken = bytes.Clone(ex.Meta.ProgressToken)
	}
	return r
}

// finish removes a request.
func (lr *legacyRequests) finish(r *legacyRequest) {
	if lr.byKey[r.key] == r {
		sparse.Delete(&lr.byKey, r.key)
		lr.reserved -= r.size
	}
	r.finished = true
	lr.timers.stop(r.retryTimer)
	lr.inputs.cancelAll(r, "the request has ended")
}

// respond answers the client with a result.
func (lr *legacyRequests) respond(r *legacyRequest, result []byte, rule string) {
	if r.finished {
		return
	}
	lr.finish(r)
	lr.send(r, jsonrpc.AppendResult(nil, r.id, result), rule)
}

// fail answers the client with an error.
func (lr *legacyRequests) fail(r *legacyRequest, e *jsonrpc.Error, rule string) {
	if r.finished {
		return
	}
	lr.finish(r)
	lr.send(r, jsonrpc.AppendError(nil, r.id, e, false), rule)
}

// endCanceled removes a request that the client has canceled. It gets no response.
func (lr *legacyRequests) endCanceled(r *legacyRequest) {
	lr.finish(r)
	if r.batch != nil {
		lr.addToBatch(r.batch, nil)
	} else if r.stream != 0 { // nothing will come on it
		lr.emit(Out{To: Downstream, Stream: r.stream, Final: true, Rule: "cancelled"})
	}
}

// streamClosed moves the messages of a closed stream to stream 0.
func (lr *legacyRequests) streamClosed(stream uint64) {
	for _, r := range lr.byKey {
		if r.stream == stream {
			r.stream = 0
		}
		if r.batch != nil && r.batch.stream == stream {
			r.batch.stream = 0
		}
	}
}

// all returns the pending requests in the order of their keys.
func (lr *legacyRequests) all() []*legacyRequest {
	var all []*legacyRequest
	for _, key := range slices.Sorted(maps.Keys(lr.byKey)) {
		all = append(all, lr.byKey[key])
	}
	return all
}

// awaitingInput returns the number of requests that wait for input from the client.
func (lr *legacyRequests) awaitingInput() int {
	n := 0
	for _, r := range lr.byKey {
		if r.pendingInputs > 0 {
			n++
		}
	}
	return n
}

// forwardError answers the client with an error of the server.
func (lr *legacyRequests) forwardError(r *legacyRequest, e *jsonrpc.Error) {
	lr.inputs.notifyComplete(r)
	converted := era.ConvertError(e, r.method, lr.handshake.legacy)
	// As a tool error, the model can report it to the user.
	if e.Code == mcp.CodeMissingRequiredClientCapability && r.method == mcp.MethodToolsCall && r.taskMode != wantsTask {
		lr.respond(r, toolError(e.Message), "-32021 → isError")
		return
	}
	lr.fail(r, converted, codeRule(e, converted))
}

// toolError returns the result of a tool that failed.
func toolError(text string) []byte {
	result := jsonwire.AppendQuote([]byte(`{"content":[{"type":"text","text":`), text)
	return append(result, `}],"isError":true}`...)
}

// send sends a response, or adds it to its batch.
func (lr *legacyRequests) send(r *legacyRequest, response []byte, rule string) {
	switch {
	case r.batch != nil:
		lr.addToBatch(r.batch, response)
		return
	case r.id == nil: // a request of taskInput
		return
	}
	lr.emit(Out{To: Downstream, Stream: r.stream, Message: response, Final: true, Rule: rule})
}

// A batch is an array of client messages. Its responses are sent as one array.
type batch struct {
	stream uint64
	// pending counts requests without a response, plus 1 while the batch is read.
	pending   int
	responses []byte
	// size counts the bytes of responses.
	size int
}

// addToBatch adds a response to a batch, or nil for a request that gets none.
func (lr *legacyRequests) addToBatch(b *batch, response []byte) {
	b.pending--
	if response != nil && !lr.reserve(len(response)) {
		response = jsonrpc.AppendError(nil, era.Lookup(response, "id"), errOverloaded, false)
		lr.reserved += len(response)
	}
	if response != nil {
		if b.responses != nil {
			b.responses = append(b.responses, ',')
		}
		b.responses = append(b.responses, response...)
		b.size += len(response)
	}
	if b.pending > 0 {
		return
	}
	lr.reserved -= b.size
	o := Out{To: Downstream, Stream: b.stream, Final: true, Rule: "batch"}
	if b.responses != nil {
		o.Message = append(append([]byte{'['}, b.responses...), ']')
	}
	if o.Message != nil || b.stream != 0 {
		lr.emit(o)
	}
}
