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
	open      int // requests without an answer, and 1 as long as the batch is read
	responses []byte
	size      int // of the responses
}

// idOf returns the id of a response.
func (b *batch) idOf(response []byte) jsonrpc.ID { return era.Lookup(response, "id") }

// nearBatch takes the messages of an array one by one.
func (t *LegacyClient) nearBatch(frame []byte, stream uint64) {
	if t.shaken && !t.legacy.Batches {
		e := jsonrpc.Errorf(jsonrpc.CodeInvalidRequest, "invalid request: revision %s has no batches", t.legacy.Revision)
		t.emit(Out{To: Near, Stream: stream, Final: true, Status: http.StatusBadRequest, Message: jsonrpc.AppendError(nil, nil, e, t.legacy.NullErrorID), Rule: "refused"})
		return
	}
	entries, err := jsonrpc.ParseBatch(frame, t.opts.Limits.Depth)
	if err != nil {
		t.nearMalformed(&jsonrpc.Message{}, stream, err)
		return
	}
	b := &batch{stream: stream, open: 1}
	for i := range entries {
		m := &entries[i]
		switch {
		case m.Invalid != nil && (m.Kind == jsonrpc.KindResponse || m.Kind == jsonrpc.KindError):
			t.drop("malformed answer")
		case m.Invalid != nil:
			b.open++
			t.batchDone(b, jsonrpc.AppendError(nil, m.ID, m.Invalid, t.legacy.NullErrorID))
		case m.Kind == jsonrpc.KindRequest && string(m.Method) == mcp.MethodInitialize:
			b.open++
			e := jsonrpc.Errorf(jsonrpc.CodeInvalidRequest, "invalid request: initialize must not be in a batch")
			t.batchDone(b, jsonrpc.AppendError(nil, m.ID, e, false))
		default:
			t.near(&m.Message, frameOf(&m.Message), stream, b)
		}
	}
	t.batchDone(b, nil)
}

// frameOf returns the text of a notification that stood in an array.
func frameOf(m *jsonrpc.Message) []byte {
	if m.Kind != jsonrpc.KindNotification {
		return nil
	}
	return jsonrpc.AppendNotification(nil, string(m.Method), m.Params)
}

// batchDone takes the answer to one request of a batch, or nil for one that gets none.
func (t *LegacyClient) batchDone(b *batch, response []byte) {
	b.open--
	if response != nil && !t.keep(len(response)) {
		response = jsonrpc.AppendError(nil, b.idOf(response), errTooMuch, false)
		t.kept += len(response)
	}
	if response != nil {
		if b.responses != nil {
			b.responses = append(b.responses, ',')
		}
		b.responses = append(b.responses, response...)
		b.size += len(response)
	}
	if b.open > 0 {
		return
	}
	t.kept -= b.size
	o := Out{To: Near, Stream: b.stream, Final: true, Rule: "batch"}
	if b.responses != nil {
		o.Message = append(append([]byte{'['}, b.responses...), ']')
	}
	if o.Message != nil || b.stream != 0 {
		t.emit(o)
	}
}
