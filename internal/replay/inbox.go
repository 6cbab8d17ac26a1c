package replay

import (
	"context"
	"sync"
	"time"

	"mcpwire/internal/resend"
)

// A conn is a connection to the server: a [resend.Session].
type conn interface {
	Send(ctx context.Context, message []byte) (resend.Sent, error)
	Next(ctx context.Context) (*resend.Incoming, error)
	OpenStream(ctx context.Context)
	Abort(exchange uint64)
	Close()
}

// An arrival is something that has come.
type arrival struct {
	*resend.Incoming
	at time.Time
}

// An inbox takes what comes at once, so that its time is right and sending never waits for it. The session bounds how much that can be, see [resend.Options.MaxCapture].
type inbox struct {
	mu       sync.Mutex
	arrivals []arrival
	err      error         // why nothing more comes
	ready    chan struct{} // holds a token if there is something that was not taken
}

func newInbox() *inbox { return &inbox{ready: make(chan struct{}, 1)} }

// fill takes what comes, until nothing more can.
func (b *inbox) fill(ctx context.Context, c conn) {
	for {
		in, err := c.Next(ctx)
		b.mu.Lock()
		if err != nil {
			b.err = err
		} else {
			b.arrivals = append(b.arrivals, arrival{in, time.Now()})
		}
		b.mu.Unlock()
		select {
		case b.ready <- struct{}{}:
		default:
		}
		if err != nil {
			return
		}
	}
}

// take returns what has come, and then why nothing more does.
func (b *inbox) take() ([]arrival, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	list := b.arrivals
	b.arrivals = nil
	return list, b.err
}
