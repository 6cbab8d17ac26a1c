package bridge

import (
	"bytes"
	"net/http"

	"mcpwire/capture"
	"mcpwire/internal/httphead"
	"mcpwire/internal/sse"
)

// What is different on the older transport: a stream says where messages are to be posted, and a request that is posted there is answered with 202 before the bridge has got it.

// A postponedHead is the head of a response that was sent before it was known whose exchange it is in. What it answers goes before it in the capture.
type postponedHead struct {
	response *capture.Response
	ended    bool
	why      string
}

// postponeHeadLocked keeps the head of a response until somebody takes what it answers, and reports whether it does.
func (x *exchange) postponeHeadLocked(status int, h http.Header) bool {
	if x.requestRecorded || status != http.StatusAccepted || x.r.Method != http.MethodPost {
		return false
	}
	x.postponed = &postponedHead{response: &capture.Response{Status: status, Proto: x.r.Proto, Headers: httphead.Headers(h, x.r.ProtoMajor == 2)}}
	return true
}

// requestReceived records what was kept, now that the message is recorded.
func (x *exchange) requestReceived() {
	x.mu.Lock()
	head := x.postponed
	x.postponed = nil
	if head != nil {
		x.responseRecorded = true
		x.rec.recordEvent(&capture.Event{Kind: capture.KindResponse, Dir: toClient, Response: head.response})
	}
	x.mu.Unlock()
	if head != nil && head.ended {
		x.recordEnd(head.why)
	}
}

// recordEndpoint records the event that begins a stream: it says where messages are posted.
func (x *exchange) recordEndpoint(text []byte) {
	x.mu.Lock()
	defer x.mu.Unlock()
	if !x.legacyStream || x.endpointRecorded {
		return
	}
	x.endpointRecorded = true
	e, err := sse.NewReader(bytes.NewReader(text), len(text)).Read()
	if err == nil && e.Name == "endpoint" {
		x.rec.recordEvent(&capture.Event{Kind: capture.KindSSE, Dir: toClient, Data: bytes.Clone(e.Data), SSE: &capture.SSE{Event: e.Name, HasData: true}})
	}
}
