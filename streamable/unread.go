package streamable

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"mcpwire/jsonrpc"
)

// An unreadBudget bounds the bytes of answers that clients have not taken yet, by caller and in all.
// Answers of up to maxWrite bytes are not counted; there are no more of them than requests in flight.
//
// An answer that finds no room waits for it, as long as there is not too much waiting as well. Beyond
// that, it is dropped, and its request fails.
type unreadBudget struct {
	max   int
	bytes atomic.Int64 // bytes that are counted, also those that wait
	mu    sync.Mutex
	total unreadUse
	byID  map[string]unreadUse // callers that have something
	freed chan struct{}        // closed when there is room again; nil if nobody waits
}

// An unreadUse is what one caller has, or all have, in bytes.
type unreadUse struct{ writing, waiting int }

// callerShareDivisor is which part of the budget one caller may have.
const callerShareDivisor = 4

// unreadTimeout is how long an answer waits for room.
const unreadTimeout = 3 * time.Second

// errUnread fails a request whose answer has no room. It has been carried out.
var errUnread = jsonrpc.Errorf(jsonrpc.CodeInternalError, "the answer was dropped: the client has not read too many others yet; the request was carried out")

// acquire waits until the caller may have n bytes more, and reports false if that takes too long.
func (b *unreadBudget) acquire(ctx context.Context, caller string, n int) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.fitsLocked(caller, n) {
		b.addLocked(caller, n, 0)
		return true
	}
	own := b.byID[caller].waiting
	if own > 0 && own+n > b.max/callerShareDivisor || b.total.waiting > 0 && b.total.waiting+n > b.max {
		return false
	}
	b.addLocked(caller, 0, n)
	late := time.NewTimer(unreadTimeout)
	defer late.Stop()
	for {
		if b.freed == nil {
			b.freed = make(chan struct{})
		}
		freed, waiting := b.freed, true
		b.mu.Unlock()
		select {
		case <-freed:
		case <-late.C:
			waiting = false
		case <-ctx.Done():
			waiting = false
		}
		b.mu.Lock()
		if fits := b.fitsLocked(caller, n); fits || !waiting {
			b.addLocked(caller, 0, -n)
			if fits {
				b.addLocked(caller, n, 0)
			}
			return fits
		}
	}
}

// fitsLocked reports whether the caller may have n bytes more. One that has none gets what is free;
// one that has some leaves as much as it has to others, so that k callers that do not read cannot
// have more than k/(k+1) of all. An answer is never too large if it is the only one.
func (b *unreadBudget) fitsLocked(caller string, n int) bool {
	own := b.byID[caller].writing
	free := b.max - b.total.writing - n
	switch {
	case b.total.writing == 0:
		return true
	case own == 0:
		return free >= 0
	}
	return own+n <= min(b.max/callerShareDivisor, free)
}

func (b *unreadBudget) addLocked(caller string, writing, waiting int) {
	u := b.byID[caller]
	u.writing += writing
	u.waiting += waiting
	if u == (unreadUse{}) {
		delete(b.byID, caller)
	} else {
		if b.byID == nil {
			b.byID = make(map[string]unreadUse)
		}
		b.byID[caller] = u
	}
	b.total.writing += writing
	b.total.waiting += waiting
	b.bytes.Add(int64(writing + waiting))
}

// release gives back what acquire gave.
func (b *unreadBudget) release(caller string, n int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.addLocked(caller, -n, 0)
	if b.freed != nil {
		close(b.freed)
		b.freed = nil
	}
}

// isExhausted reports whether the caller has its share, so that it is to read before it asks for more.
func (b *unreadBudget) isExhausted(caller string) bool {
	if b.bytes.Load() < int64(b.max/callerShareDivisor) {
		return false
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	u := b.byID[caller]
	return u.writing+u.waiting >= b.max/callerShareDivisor
}

// reserveUnread has room for the answer before it is written, or makes it a failure. done gives the room
// back.
func (pr *postRequest) reserveUnread(ctx context.Context, err error) (release func(), _ error) {
	n := len(pr.answer)
	if n <= maxWrite {
		return func() {}, err
	}
	b, caller := &pr.h.unread, pr.caller.id
	if !b.acquire(ctx, caller, n) {
		pr.h.opts.Logger.Warn("an answer dropped, because too many are not read", "bytes", n)
		pr.answer = pr.errorResponse(errUnread)
		return func() {}, errUnread
	}
	return func() { b.release(caller, n) }, err
}
