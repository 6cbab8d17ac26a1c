package translate

import (
	"net/http"

	"mcpwire/internal/era"
	"mcpwire/jsonrpc"
	"mcpwire/mcp"
)

// A batch is an array of messages that the client sent. The answers to its requests go back as one array, when all are there.
type batch struct {
	stream    uint64
	pending   int // requests without an answer, and 1 as long as the batch is read
	responses []byte
	size      int // of the responses
}

// responseID returns the id of a response.
func (b *batch) responseID(response []byte) jsonrpc.ID { return era.Lookup(response, "id") }

// downstreamBatch takes the messages of an array one by one.
func (t *LegacyToModern) downstreamBatch(frame []byte, stream uint64) {
	if t.negotiated && !t.legacy.Batches {
		e := jsonrpc.Errorf(jsonrpc.CodeInvalidRequest, "invalid request: revision %s has no batches", t.legacy.Revision)
		t.emit(Out{To: Downstream, Stream: stream, Final: true, Status: http.StatusBadRequest, Message: jsonrpc.AppendError(nil, nil, e, t.legacy.NullErrorID), Rule: "refused"})
		return
	}
	entries, err := jsonrpc.ParseBatch(frame, t.opts.Limits.Depth)
	if err != nil {
		t.downstreamMalformed(&jsonrpc.Message{}, stream, err)
		return
	}
	b := &batch{stream: stream, pending: 1}
	for i := range entries {
		m := &entries[i]
		switch {
		case m.Invalid != nil && (m.Kind == jsonrpc.KindResponse || m.Kind == jsonrpc.KindError):
			t.drop("malformed answer")
		case m.Invalid != nil:
			b.pending++
			t.addBatchResponse(b, jsonrpc.AppendError(nil, m.ID, m.Invalid, t.legacy.NullErrorID))
		case m.Kind == jsonrpc.KindRequest && string(m.Method) == mcp.MethodInitialize:
			b.pending++
			e := jsonrpc.Errorf(jsonrpc.CodeInvalidRequest, "invalid request: initialize must not be in a batch")
			t.addBatchResponse(b, jsonrpc.AppendError(nil, m.ID, e, false))
		default:
			t.handleDownstream(&m.Message, frameOf(&m.Message), stream, b)
		}
	}
	t.addBatchResponse(b, nil)
}

// frameOf returns the text of a notification that stood in an array.
func frameOf(m *jsonrpc.Message) []byte {
	if m.Kind != jsonrpc.KindNotification {
		return nil
	}
	return jsonrpc.AppendNotification(nil, string(m.Method), m.Params)
}

// addBatchResponse takes the answer to one request of a batch, or nil for one that gets none.
func (t *LegacyToModern) addBatchResponse(b *batch, response []byte) {
	b.pending--
	if response != nil && !t.reserve(len(response)) {
		response = jsonrpc.AppendError(nil, b.responseID(response), errOverloaded, false)
		t.reserved += len(response)
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
	t.reserved -= b.size
	o := Out{To: Downstream, Stream: b.stream, Final: true, Rule: "batch"}
	if b.responses != nil {
		o.Message = append(append([]byte{'['}, b.responses...), ']')
	}
	if o.Message != nil || b.stream != 0 {
		t.emit(o)
	}
}
