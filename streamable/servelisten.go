package streamable

import (
	"log/slog"
	"net"
	"sync"
	"time"
)

// A boundedListener accepts no more connections while as many as may be are open. The others wait in the queue of the operating system, which is bounded too.
type boundedListener struct {
	net.Listener
	connLimits
	log  *slog.Logger
	done chan struct{} // closed by Close
	once sync.Once
	err  error // of Close

	lastWarning time.Time // of Accept, which one goroutine calls
}

func newBoundedListener(l net.Listener, b connLimits, log *slog.Logger) *boundedListener {
	return &boundedListener{Listener: l, connLimits: b, log: log, done: make(chan struct{})}
}

// warnInterval is how often it is logged at most that there are too many connections.
const warnInterval = time.Minute

// Accept implements [net.Listener].
func (l *boundedListener) Accept() (net.Conn, error) {
	select {
	case l.slots <- struct{}{}:
	default:
		if now := time.Now(); l.lastWarning.IsZero() || now.Sub(l.lastWarning) >= warnInterval {
			l.lastWarning = now
			l.log.Warn("no more connections are accepted until one ends", "limit", cap(l.slots))
		}
		select {
		case l.slots <- struct{}{}:
		case <-l.done:
			return nil, net.ErrClosed
		}
	}
	c, err := l.Listener.Accept()
	if err != nil {
		<-l.slots
		return nil, err
	}
	return newBoundedConn(c, &l.connLimits), nil
}

// Close implements [net.Listener].
func (l *boundedListener) Close() error {
	l.once.Do(func() {
		close(l.done)
		l.err = l.Listener.Close()
	})
	return l.err
}
