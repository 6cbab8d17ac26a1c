package natscluster

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"mcpwire/cluster"
)

const (
	// leaderPoll is the time between attempts to reach a stream without a leader, since the message
	// that it has one may be lost.
	leaderPoll = 250 * time.Millisecond
	// handoverTime is how long an append waits for a leader. One that hands over in order takes a
	// tenth of a second. An election takes 4 to 9 seconds, and the clients of the log do not wait
	// for it.
	handoverTime = 250 * time.Millisecond
	// circuitTime is the time between appends to a stream that has no leader for longer than that,
	// or does not respond. Others fail at once.
	circuitTime = time.Second
	// electedSubject is the prefix of the subjects at which NATS announces new leaders of streams.
	electedSubject = "$JS.EVENT.ADVISORY.STREAM.LEADER_ELECTED."
)

// leaders records which streams have no leader.
type leaders struct {
	mu sync.Mutex
	// streams has the streams that were looked up.
	streams map[string]*leader
}

// A leader is the known state of the leader of a stream.
type leader struct {
	// term ends when NATS announces a new leader. end ends it.
	term context.Context
	end  context.CancelFunc
	// lostAt is the time when a call found none. It is zero if there is one.
	lostAt time.Time
	// retryAt is the time until which appends fail at once, if lostAt is not zero.
	retryAt time.Time
}

// watch subscribes l to the announcements of NATS, until the connection is closed.
func (l *leaders) watch(nc *nats.Conn) error {
	_, err := nc.Subscribe(electedSubject+">", func(m *nats.Msg) {
		l.elected(strings.TrimPrefix(m.Subject, electedSubject))
	})
	return err
}

func (l *leaders) streamLocked(name string) *leader {
	s := l.streams[name]
	if s == nil {
		s = new(leader)
		s.term, s.end = context.WithCancel(context.Background())
		if l.streams == nil {
			l.streams = make(map[string]*leader)
		}
		l.streams[name] = s
	}
	return s
}

// term returns a context that ends when the stream has a new leader.
func (l *leaders) term(name string) context.Context {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.streamLocked(name).term
}

// elected notes that a stream has a new leader.
func (l *leaders) elected(name string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if s := l.streams[name]; s != nil {
		delete(l.streams, name)
		s.end()
	}
}

// responds notes that a stream has a leader.
func (l *leaders) responds(name string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if s := l.streams[name]; s != nil && !s.lostAt.IsZero() {
		delete(l.streams, name)
		s.end()
	}
}

// lost notes that a stream has no leader. silent means that it does not respond.
func (l *leaders) lost(name string, silent bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	s, now := l.streamLocked(name), time.Now()
	if s.lostAt.IsZero() {
		s.lostAt, s.retryAt = now, now
	}
	if silent || now.Sub(s.lostAt) >= handoverTime {
		s.retryAt = now.Add(circuitTime)
	}
}

// admit returns an error if an append to the stream must fail at once. Of the appends that are made
// when the time is over, it admits one.
func (l *leaders) admit(name string) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	s, now := l.streams[name], time.Now()
	if s == nil || s.lostAt.IsZero() {
		return nil
	}
	if now.Before(s.retryAt) {
		return fmt.Errorf("%w: stream %s has no leader", cluster.ErrUnavailable, name)
	}
	if now.Sub(s.lostAt) >= handoverTime {
		s.retryAt = now.Add(circuitTime)
	}
	return nil
}

// publish stores a message. Without a leader it waits for one until ctx ends. repeated means that
// it sent the message again after an election, and that NATS may have stored it before.
func (b *Backend) publish(ctx context.Context, stream string, m *nats.Msg, opts ...jetstream.PublishOpt) (seq uint64, repeated bool, err error) {
	opts = append(opts, jetstream.WithRetryAttempts(0))
	for {
		term := b.leaders.term(stream)
		call, cancel := untilElected(ctx, term)
		ack, err := b.js.PublishMsg(call, m, opts...)
		again := call.Err() != nil && ctx.Err() == nil
		cancel()
		switch {
		case err == nil:
			b.leaders.responds(stream)
			return ack.Sequence, repeated, nil
		case again: // at the new leader
			repeated = true
		case !errors.Is(err, jetstream.ErrNoStreamResponse):
			return 0, repeated, mapError(ctx, err)
		default:
			b.leaders.lost(stream, false)
			b.seek(stream)
			if !waitLeader(ctx, term) {
				return 0, repeated, mapError(ctx, err)
			}
		}
	}
}

// untilElected returns a context for a request to a leader, which must be canceled. It ends with
// ctx, and when there is a new leader: then the one before does not respond, if it has not.
func untilElected(ctx, term context.Context) (context.Context, context.CancelFunc) {
	call, cancel := context.WithCancel(ctx)
	stop := context.AfterFunc(term, cancel)
	return call, func() { stop(); cancel() }
}

// append is publish for a message of a log. It fails soon if there is no leader, and at once if
// that is known.
func (b *Backend) append(ctx context.Context, stream string, m *nats.Msg, opts ...jetstream.PublishOpt) (uint64, error) {
	opts = append(opts, jetstream.WithRetryAttempts(0))
	began := time.Now()
	for {
		if err := b.leaders.admit(stream); err != nil {
			return 0, err
		}
		term := b.leaders.term(stream)
		ack, err := b.js.PublishMsg(ctx, m, opts...)
		switch {
		case err == nil:
			b.leaders.responds(stream)
			return ack.Sequence, nil
		case errors.Is(err, jetstream.ErrNoStreamResponse):
			b.leaders.lost(stream, false)
			b.seek(stream)
			if waitLeader(ctx, term) {
				continue
			}
		case errors.Is(ctx.Err(), context.DeadlineExceeded) && time.Since(began) >= circuitTime:
			b.leaders.lost(stream, true)
		}
		return 0, mapError(ctx, err)
	}
}

// waitLeader waits until a term ends, or it is time to try again. It returns false if ctx ends.
func waitLeader(ctx, term context.Context) bool {
	timer := time.NewTimer(leaderPoll)
	defer timer.Stop()
	select {
	case <-term.Done():
	case <-timer.C:
	case <-ctx.Done():
		return false
	}
	return true
}

// get asks the leader of a stream for a message. The error is errNoMessage if there is none.
// Without a leader it waits for one until ctx ends.
func (b *Backend) get(ctx context.Context, stream string, r getRequest) (*storedMsg, error) {
	for {
		term := b.leaders.term(stream)
		call, cancel := untilElected(ctx, term)
		m, err := b.tryGet(call, stream, r)
		again := call.Err() != nil && ctx.Err() == nil
		cancel()
		switch {
		case err == nil:
			return m, nil
		case again: // at the new leader
		case !b.mayCome(stream, err) || !waitLeader(ctx, term):
			return nil, err
		}
	}
}

// mayCome reports whether a request to a stream failed because it has no leader, or does not exist.
// Then it has seek look for the stream.
func (b *Backend) mayCome(stream string, err error) bool {
	api, ok := errors.AsType[*jetstream.APIError](err)
	if !ok || api.ErrorCode != codeNotAvailable && api.ErrorCode != jetstream.JSErrCodeStreamNotFound {
		return false
	}
	if api.ErrorCode == jetstream.JSErrCodeStreamNotFound {
		b.seek(stream)
	}
	return true
}

func (b *Backend) tryGet(ctx context.Context, stream string, r getRequest) (*storedMsg, error) {
	response, err := b.callAPI(ctx, "STREAM.MSG.GET."+stream, r)
	switch {
	case err != nil:
		return nil, err
	case response.Error != nil && response.Error.ErrorCode == jetstream.JSErrCodeMessageNotFound:
		return nil, errNoMessage
	case response.Error != nil:
		return nil, mapError(ctx, response.Error)
	case response.Message == nil:
		return nil, errors.New("natscluster: invalid response of NATS: no message")
	}
	return response.Message, nil
}

// An apiResponse is a response of the API of JetStream.
type apiResponse struct {
	Error   *jetstream.APIError `json:"error"`
	Message *storedMsg          `json:"message"`
}

// callAPI sends a request to the API of JetStream.
func (b *Backend) callAPI(ctx context.Context, name string, request any) (*apiResponse, error) {
	text, err := json.Marshal(request)
	if err != nil {
		return nil, err
	}
	reply, err := b.nc.RequestWithContext(ctx, "$JS.API."+name, text)
	if err != nil {
		return nil, mapError(ctx, err)
	}
	response := new(apiResponse)
	if err := json.Unmarshal(reply.Data, response); err != nil {
		return nil, fmt.Errorf("natscluster: invalid response of NATS: %w", err)
	}
	return response, nil
}
