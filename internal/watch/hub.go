package watch

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"sync"

	"mcpwire/check"
	"mcpwire/internal/live"
	"mcpwire/internal/wireview"
)

var (
	// ErrNoRestart is wrapped by the error of Restart for a capture whose tap does not run, or does not start its server again.
	ErrNoRestart = errors.New("watch: the tap of this capture cannot start its server again")
	// ErrStopped is returned when Run has ended, or was called before.
	ErrStopped = errors.New("watch: the hub does not run any more")
)

// Options say what is watched. nil means nothing, until [Hub.Open].
type Options struct {
	Dir         string         // folder of captures: new ones are followed as they appear; "" none
	SocketDir   string         // folder of the sockets of running taps, see live.Dir; "" none
	Files       []string       // captures to follow besides
	MaxFinished int            // how many of Dir's captures that nobody writes any more are read, the newest ones; -1 is all, 0 none
	NoRules     bool           // do not hold traffic against the rules
	Rules       *check.Options // nil means defaults
	MaxRows     int            // 0 is wireview.DefaultMaxRows
}

// A Hub follows captures and running taps, and keeps the model of all of it.
type Hub struct {
	opts Options
	id   string
	ring *ring

	mu                sync.Mutex // of the model and of what is made of it
	model             *trace.Model
	changeLog         changeLog
	feeds             map[*Feed]struct{}
	selections        map[*Selection]struct{}
	payloadSelections []*Selection // those that look at payloads; replaced, never changed
	multiRow          map[eventKey][]uint64
	childLists        childLists
	phase             phase
	ctx               context.Context // of Run
	wg                sync.WaitGroup

	sourcesMu      sync.Mutex // of the sources. It may be taken while mu is held, not the other way round
	sources        []*source
	segments       map[string]*segment
	captureOrder   []string
	sourcesVersion uint64 // counts what is new about sources
	progress       progressLimiter
	followedTaps   map[string]bool // sockets that somebody looks after
}

// eventKey is an event.
type eventKey struct {
	capture string
	n       uint64
}

// A phase is what Run is at.
type phase uint8

const (
	idle phase = iota
	loading
	following
	stopped
)

// New returns a Hub that reads nothing before Run. opts may be nil.
func New(opts *Options) *Hub {
	h := &Hub{
		id: rand.Text(), ring: newRing(maxRing), feeds: map[*Feed]struct{}{}, selections: map[*Selection]struct{}{}, multiRow: map[eventKey][]uint64{},
		segments: map[string]*segment{}, followedTaps: map[string]bool{},
	}
	if opts != nil {
		h.opts = *opts
	}
	h.model = trace.New(&trace.Options{MaxRows: h.opts.MaxRows})
	h.childLists = childLists{}
	return h
}

// Run reads until ctx ends, and waits for all that it has started. It returns ErrStopped if it was called before, else nil: what goes wrong with a source is in Sources.
func (h *Hub) Run(ctx context.Context) error {
	h.mu.Lock()
	if h.phase != idle {
		h.mu.Unlock()
		return ErrStopped
	}
	h.phase, h.ctx = loading, ctx
	h.mu.Unlock()
	l := newDirScanner(h)
	past := l.initial()
	h.load(ctx, past)
	h.mu.Lock()
	h.phase = following
	h.mu.Unlock()
	for _, s := range h.claimUnstarted() {
		h.wg.Go(func() { s.run(ctx) })
	}
	l.run(ctx)
	h.mu.Lock()
	h.phase = stopped
	h.mu.Unlock()
	h.wg.Wait()
	for _, s := range h.claimUnstarted() {
		s.close()
	}
	return nil
}

// start runs f on a goroutine that Run waits for, and reports whether there is a Run that does.
func (h *Hub) start(f func(ctx context.Context)) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.phase != loading && h.phase != following {
		return false
	}
	ctx := h.ctx
	h.wg.Go(func() { f(ctx) })
	return true
}

// Read calls f with the model locked. Rows, and the methods of Selections, may be used inside f only.
func (h *Hub) Read(f func(m *trace.Model)) {
	h.mu.Lock()
	defer h.mu.Unlock()
	f(h.model)
}

// ID returns a random text, so that a viewer sees that versions are of another hub.
func (h *Hub) ID() string { return h.id }

// Open follows a capture besides. It is no error if that is done already. The error may be that of the system, wrap [capture.ErrNotCapture] or [capture.ErrVersion], or be ErrStopped.
func (h *Hub) Open(path string) error { return h.OpenLimited(path, 0) }

// OpenLimited is Open for a file of a stranger: one that is compressed is read until maxUnpacked bytes
// have come out of it. Zero is the default of [capture.ReaderOptions].
func (h *Hub) OpenLimited(path string, maxUnpacked int64) error {
	if err := checkCapture(path); err != nil {
		return err
	}
	h.removeFailed(path)
	s, added := h.addFileLimited(path, !compressed(path), maxUnpacked)
	if !added {
		return nil
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	switch h.phase {
	case stopped:
		return ErrStopped
	case following:
		if !s.claim() {
			return nil
		}
		ctx := h.ctx
		h.wg.Go(func() { s.run(ctx) })
	}
	return nil // Run starts it
}

// Restart asks the tap of a capture to start its server again. It returns when that was asked for, not when it was done. The error may wrap ErrNoRestart.
func (h *Hub) Restart(_ context.Context, captureID string) error {
	h.sourcesMu.Lock()
	var conn *live.Conn
	if c := h.segments[captureID]; c != nil && c.source.info.CanRestart {
		conn = c.source.conn
	}
	h.sourcesMu.Unlock()
	if conn == nil {
		return ErrNoRestart
	}
	if err := conn.Restart(); err != nil {
		return fmt.Errorf("%w: %w", ErrNoRestart, err)
	}
	return nil
}
