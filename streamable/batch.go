package streamable

import (
	"context"
	"net/http"
	"sync"

	"mcpwire/jsonrpc"
)

// serveLegacyBatch answers an array of messages by an array of answers.
func (pr *postRequest) serveLegacyBatch(entries []jsonrpc.Entry) {
	h, w, r := pr.h, pr.w, pr.r
	s := h.acquireSession(w, r, pr.requester, pr.caller)
	if s == nil {
		return
	}
	defer s.release()
	if f := s.features.Load(); f == nil || !f.Batches {
		writeError(w, http.StatusBadRequest, jsonrpc.CodeInvalidRequest, "this revision has no batches")
		return
	}
	answers := 0
	for i := range entries {
		e := &entries[i]
		if e.Invalid != nil || e.Kind == jsonrpc.KindRequest {
			answers++
		}
		if e.Invalid == nil && !h.allowed(w, r, &e.Message) {
			return
		}
	}
	if answers == 0 {
		ctx := pr.withIdentity(r.Context())
		for i := range entries {
			s.deliverOneWay(ctx, nil, &entries[i].Message)
		}
		w.WriteHeader(http.StatusAccepted)
		return
	}
	if !pr.admitRequest() || !h.admitBatch(w, pr.caller, &pr.admission, answers-1) {
		return
	}
	pr.extraRequests = answers - 1
	pr.serveLegacyRequest(s, entries)
}

// deliverBatch handles the messages at the same time, but each by what came before it, and appends the
// array of the answers; nothing if there are none, because all were cancelled.
func (s *session) deliverBatch(ctx context.Context, st *stream, entries []jsonrpc.Entry, dst []byte) []byte {
	answers := make([][]byte, len(entries))
	var wg sync.WaitGroup
	for i := range entries {
		e := &entries[i]
		switch {
		case e.Invalid != nil:
			answers[i] = jsonrpc.AppendError(nil, e.ID, e.Invalid, false)
		case e.Kind == jsonrpc.KindRequest:
			placed := make(chan struct{})
			place := sync.OnceFunc(func() { close(placed) })
			wg.Go(func() {
				defer place()
				d := &jsonrpc.Delivery{Message: &e.Message, Sender: st, Lifetime: s.ctx, Batch: true, OnPrepared: place}
				answers[i], _ = s.peer.deliverRequest(ctx, nil, d, nil)
			})
			if _, ok := s.peer.(serverConn); ok { // what a relay does with it is for the relay to say
				<-placed
			}
		default:
			s.deliverOneWay(ctx, nil, &e.Message)
		}
	}
	wg.Wait()
	start := len(dst)
	for _, answer := range answers {
		if len(answer) == 0 {
			continue
		}
		if len(dst) == start {
			dst = append(dst, '[')
		} else {
			dst = append(dst, ',')
		}
		dst = append(dst, answer...)
	}
	if len(dst) > start {
		dst = append(dst, ']')
	}
	return dst
}
