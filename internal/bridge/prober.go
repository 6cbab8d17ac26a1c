package bridge

import (
	"context"
	"errors"
	"time"

	"mcpwire/jsonrpc"
)

// probeTimeout is how long a server may take to say whether it is modern.
const probeTimeout = 5 * time.Second

// probing is the part of the time for a connection that is left to the first question.
func (o *Options) probing() time.Duration {
	if o.ConnectTimeout < 0 {
		return probeTimeout
	}
	return min(probeTimeout, o.ConnectTimeout/2)
}

// A prober is the user of a line of which nobody knows yet what it is for: it asks one thing after the other.
type prober struct {
	answers chan probed
	kept    []probed // what the server has sent of itself, which is for the next user; guarded by the line's passing, as is
	bytes   int      // of it

	hello, welcome []byte // the handshake that there was, for the next user; nil if there was none
}

// forget throws away what was answered to what was asked before.
func (u *prober) forget() {
	for {
		select {
		case <-u.answers:
		default:
			return
		}
	}
}

// maxKept is how many messages are kept, and maxKeptBytes how much of them besides the first.
const (
	maxKept      = 256
	maxKeptBytes = 1 << 20
)

// probed is an answer, or why there is none.
type probed struct {
	m     *jsonrpc.Message
	frame []byte
	from  origin
	event uint64 // in the capture
	err   error
}

// newProber returns a prober and its line.
func (b *Bridge) newProber() (*prober, *line) { return b.newProberFor(b.ctx) }

// newProberFor is newProber with a context for what the line does, of b.ctx.
func (b *Bridge) newProberFor(ctx context.Context) (*prober, *line) {
	u := &prober{answers: make(chan probed, 8)}
	l := b.prepareLineFor(ctx, u)
	b.wg.Go(l.run)
	return u, l
}

// ask sends a request of the bridge's own, and waits for the answer.
func (u *prober) ask(ctx context.Context, l *line, frame []byte) (*jsonrpc.Message, error) {
	id := locate(frame, "id")
	a := u.await(ctx, l, item{frame: frame, id: id.of(frame)})
	return a.m, a.err
}

// await sends a request and waits for the answer; if it has no id, for any.
func (u *prober) await(ctx context.Context, l *line, it item) probed {
	id := it.id
	l.sendFirst(it)
	for {
		select {
		case a := <-u.answers:
			if a.err == nil && id != nil && !a.m.ID.Equal(id) && !a.m.ID.IsNull() && len(a.m.ID) > 0 {
				continue // to what was asked before
			}
			return a
		case <-ctx.Done():
			return probed{err: context.Cause(ctx)}
		}
	}
}

func (u *prober) tell(a probed) {
	select {
	case u.answers <- a:
	default: // nobody asks that much
	}
}

// received implements user.
func (u *prober) received(frame []byte, m *jsonrpc.Message, from origin) {
	if m.Kind == jsonrpc.KindResponse || m.Kind == jsonrpc.KindError {
		u.tell(probed{m: m, frame: frame, event: from.lane.record(toClient, frame)})
		return
	}
	if len(u.kept) >= maxKept || u.bytes > 0 && u.bytes+len(frame) > maxKeptBytes {
		from.lane.record(toClient, frame)
		return
	}
	u.kept = append(u.kept, probed{m: m, frame: frame, from: from}) // the next user records it
	u.bytes += len(frame)
}

// callFailed implements user.
func (u *prober) callFailed(_ jsonrpc.ID, err error) { u.tell(probed{err: err}) }

// disconnected implements user.
func (u *prober) disconnected(err error, _ []item) {
	if !errors.Is(err, errLineClosed) {
		u.tell(probed{err: err})
	}
}

func (u *prober) missed()                         {}
func (u *prober) connected(context.Context) error { return nil }
func (u *prober) needed() bool                    { return false }
