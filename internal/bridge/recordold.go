package bridge

import (
	"bytes"
	"net/http"

	"mcpwire/capture"
	"mcpwire/internal/httphead"
	"mcpwire/internal/sse"
)

// What is different on the older transport: a stream says where messages are to be posted, and a request that is posted there is answered with 202 before the bridge has got it.

// A lateHead is the head of a response that was sent before it was known whose exchange it is in. What it answers goes before it in the capture.
type lateHead struct {
	response *capture.Response
	ended    bool
	why      string
}

// postponeLocked keeps the head of a response until somebody takes what it answers, and reports whether it does.
func (x *exchange) postponeLocked(status int, h http.Header) bool {
	if x.asked || status != http.StatusAccepted || x.r.Method != http.MethodPost {
		return false
	}
	x.late = &lateHead{response: &capture.Response{Status: status, Proto: x.r.Proto, Headers: httphead.Fields(h, x.r.ProtoMajor == 2)}}
	return true
}

// received records what was kept, now that the message is recorded.
func (x *exchange) received() {
	x.mu.Lock()
	late := x.late
	x.late = nil
	if late != nil {
		x.headed = true
		x.lane.event(&capture.Event{Kind: capture.KindResponse, Dir: toClient, Response: late.response})
	}
	x.mu.Unlock()
	if late != nil && late.ended {
		x.end(late.why)
	}
}

// named records the event that begins a stream: it says where messages are posted.
func (x *exchange) named(text []byte) {
	x.mu.Lock()
	defer x.mu.Unlock()
	if !x.opens || x.told {
		return
	}
	x.told = true
	e, err := sse.NewReader(bytes.NewReader(text), len(text)).Read()
	if err == nil && e.Name == "endpoint" {
		x.lane.event(&capture.Event{Kind: capture.KindSSE, Dir: toClient, Data: bytes.Clone(e.Data), SSE: &capture.SSE{Event: e.Name, HasData: true}})
	}
}
