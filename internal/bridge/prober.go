package bridge

import (
	"context"
	"errors"
	"time"

	"mcpwire/jsonrpc"
)

// probeTimeout is how long a server may take to say whether it is modern.
const probeTimeout = 5 * time.Second

// eraProbeTimeout is the part of the time for a connection that is left to the first question.
func (o *Options) eraProbeTimeout() time.Duration {
	if o.ConnectTimeout < 0 {
		return probeTimeout
	}
	return min(probeTimeout, o.ConnectTimeout/2)
}

// A prober is the user of a line of which nobody knows yet what it is for: it asks one thing after the other.
type eraProbe struct {
	results          chan probeResult
	unsolicited      []probeResult // what the server has sent of itself, which is for the next user; guarded by the line's passing, as is
	unsolicitedBytes int           // of it

	initialize, initializeResult []byte // the handshake that there was, for the next user; nil if there was none
}

// discardResults throws away what was answered to what was asked before.
func (e *eraProbe) discardResults() {
	for {
		select {
		case <-e.results:
		default:
			return
		}
	}
}

// maxUnsolicited is how many messages are kept, and maxUnsolicitedBytes how much of them besides the first.
const (
	maxUnsolicited      = 256
	maxUnsolicitedBytes = 1 << 20
)

// probeResult is an answer, or why there is none.
type probeResult struct {
	m     *jsonrpc.Message
	frame []byte
	from  origin
	event uint64 // in the capture
	err   error
}

// newEraProbe returns a prober and its line.
func (b *Bridge) newEraProbe() (*eraProbe, *upstream) { return b.newEraProbeWithContext(b.ctx) }

// newEraProbeWithContext is newEraProbe with a context for what the line does, of b.ctx.
func (b *Bridge) newEraProbeWithContext(ctx context.Context) (*eraProbe, *upstream) {
	probe := &eraProbe{results: make(chan probeResult, 8)}
	up := b.newUpstreamWithContext(ctx, probe)
	b.wg.Go(up.run)
	return probe, up
}

// roundTrip sends a request of the bridge's own, and waits for the answer.
func (e *eraProbe) roundTrip(ctx context.Context, up *upstream, frame []byte) (*jsonrpc.Message, error) {
	id := locate(frame, "id")
	a := e.roundTripMessage(ctx, up, queuedMessage{frame: frame, id: id.slice(frame)})
	return a.m, a.err
}

// roundTripMessage sends a request and waits for the answer; if it has no id, for any.
func (e *eraProbe) roundTripMessage(ctx context.Context, up *upstream, it queuedMessage) probeResult {
	id := it.id
	up.sendUrgent(it)
	for {
		select {
		case a := <-e.results:
			if a.err == nil && id != nil && !a.m.ID.Equal(id) && !a.m.ID.IsNull() && len(a.m.ID) > 0 {
				continue // to what was asked before
			}
			return a
		case <-ctx.Done():
			return probeResult{err: context.Cause(ctx)}
		}
	}
}

func (e *eraProbe) deliver(a probeResult) {
	select {
	case e.results <- a:
	default: // nobody asks that much
	}
}

// received implements user.
func (e *eraProbe) received(frame []byte, m *jsonrpc.Message, from origin) {
	if m.Kind == jsonrpc.KindResponse || m.Kind == jsonrpc.KindError {
		e.deliver(probeResult{m: m, frame: frame, event: from.rec.recordMessage(toClient, frame)})
		return
	}
	if len(e.unsolicited) >= maxUnsolicited || e.unsolicitedBytes > 0 && e.unsolicitedBytes+len(frame) > maxUnsolicitedBytes {
		from.rec.recordMessage(toClient, frame)
		return
	}
	e.unsolicited = append(e.unsolicited, probeResult{m: m, frame: frame, from: from}) // the next user records it
	e.unsolicitedBytes += len(frame)
}

// callFailed implements user.
func (e *eraProbe) callFailed(_ jsonrpc.ID, err error) { e.deliver(probeResult{err: err}) }

// disconnected implements user.
func (e *eraProbe) disconnected(err error, _ []queuedMessage) {
	if !errors.Is(err, errUpstreamClosed) {
		e.deliver(probeResult{err: err})
	}
}

func (e *eraProbe) messagesLost()                     {}
func (e *eraProbe) reconnected(context.Context) error { return nil }
func (e *eraProbe) wantsConnection() bool             { return false }
