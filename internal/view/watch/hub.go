package watch

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"mcpwire/capture"
	"mcpwire/check"
	"mcpwire/internal/trace"
	"mcpwire/internal/trace/captures"
	"mcpwire/internal/trace/live"
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

const (
	scanInterval     = 100 * time.Millisecond // between two looks at the folders
	fullScanInterval = 5 * time.Second        // after which a folder is read although its time says that nothing is new
	mtimeSlack       = 2 * time.Second        // that the time of a folder must be old before it is trusted: it may be coarse
	maxTaps          = 256                    // that are watched at once
)

// A looker looks for what is new in the folders.
type dirScanner struct {
	hub     *Hub
	seen    map[string]bool // names in Dir
	dir     polledDir
	sockets polledDir
}

func newDirScanner(h *Hub) *dirScanner {
	return &dirScanner{hub: h, seen: map[string]bool{}, dir: polledDir{path: h.opts.Dir}, sockets: polledDir{path: h.opts.SocketDir}}
}

// A folder knows when it was read last.
type polledDir struct {
	path     string
	modified time.Time
	read     time.Time
}

// mayHaveChanged reports whether something may be new in the folder.
func (pd *polledDir) mayHaveChanged() bool {
	if pd.path == "" {
		return false
	}
	info, err := os.Stat(pd.path)
	if err != nil {
		return false
	}
	now, modified := time.Now(), info.ModTime()
	if modified.Equal(pd.modified) && pd.read.Sub(modified) > mtimeSlack && now.Sub(pd.read) < fullScanInterval {
		return false
	}
	pd.modified, pd.read = modified, now
	return true
}

// initial returns what is to be read at the beginning.
func (ds *dirScanner) initial() (list []*source) {
	h := ds.hub
	for _, path := range h.opts.Files {
		s, added := h.addFile(path, !compressed(path))
		if !added {
			continue
		}
		if err := checkCapture(path); err != nil {
			s.claim()
			s.finish(err)
			continue
		}
		if info, err := captures.Stat(path); err == nil {
			s.captureStart = info.Started
		}
		list = append(list, s)
	}
	if h.opts.Dir == "" {
		return list
	}
	ds.dir.mayHaveChanged()
	infos, err := captures.List(h.opts.Dir)
	if err != nil {
		s, _ := h.addFile(h.opts.Dir, false)
		s.claim()
		s.finish(err)
	}
	past := 0
	for _, info := range infos { // the newest first
		ds.seen[filepath.Base(info.Path)] = true
		// One that was begun just now may not be locked yet.
		writing := info.State == captures.Writing || info.State == captures.Truncated && time.Since(info.Modified).Abs() < mtimeSlack
		if !writing {
			if past++; h.opts.MaxFinished >= 0 && past > h.opts.MaxFinished {
				continue
			}
		}
		if s, added := h.addFile(info.Path, writing); added {
			s.captureStart = info.Started
			list = append(list, s)
		}
	}
	return list
}

// run looks until ctx ends.
func (ds *dirScanner) run(ctx context.Context) {
	ticker := time.NewTicker(scanInterval)
	defer ticker.Stop()
	for {
		ds.scanCaptures()
		ds.scanTaps()
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
	}
}

// scanCaptures looks for new captures.
func (ds *dirScanner) scanCaptures() {
	if !ds.dir.mayHaveChanged() {
		return
	}
	d, err := os.Open(ds.dir.path)
	if err != nil {
		return // it may come back
	}
	defer d.Close()
	names, _ := d.Readdirnames(-1) // what could be read
	now := make(map[string]bool, len(names))
	for _, name := range names {
		if !strings.HasSuffix(strings.TrimSuffix(strings.TrimSuffix(name, ".gz"), ".zst"), capture.Suffix) {
			continue
		}
		now[name] = true
		if ds.seen[name] {
			continue
		}
		path := filepath.Join(ds.dir.path, name)
		if info, err := os.Lstat(path); err != nil || !info.Mode().IsRegular() {
			continue
		}
		if s, added := ds.hub.addFile(path, true); added && s.claim() {
			ds.hub.start(s.run)
		}
	}
	ds.seen = now
}

// scanTaps looks for new sockets.
func (ds *dirScanner) scanTaps() {
	if !ds.sockets.mayHaveChanged() {
		return
	}
	paths, err := live.List(ds.sockets.path)
	h := ds.hub
	if err != nil { // nothing is done with a folder that others have access to
		if s, added := h.addFile(ds.sockets.path, false); added {
			s.claim()
			s.finish(err)
		}
		return
	}
	for _, path := range paths {
		h.sourcesMu.Lock()
		known := h.followedTaps[path] || len(h.followedTaps) >= maxTaps
		if !known {
			h.followedTaps[path] = true
		}
		h.sourcesMu.Unlock()
		if !known {
			h.start(func(ctx context.Context) { h.followTap(ctx, path) })
		}
	}
}

const maxLog = 1 << 17 // changes that are remembered

// A changeLog remembers which rows have changed, in the order in which they did. The number of a change is the version of the model after it.
type changeLog struct {
	ring    []uint64 // Seq
	version uint64
	rows    map[uint64]*trace.Row // those that are there
}

func (l *changeLog) add(seq uint64) {
	l.version++
	if len(l.ring) < maxLog {
		l.ring = append(l.ring, seq)
		return
	}
	l.ring[(l.version-1)%maxLog] = seq
}

// at returns which row changed in a version.
func (l *changeLog) at(version uint64) uint64 { return l.ring[(version-1)%maxLog] }

// has reports whether the changes after a version are remembered.
func (l *changeLog) has(after uint64) bool {
	return after <= l.version && l.version-after <= uint64(len(l.ring))
}

// applyLocked takes what the model says has changed. h.mu is held.
func (h *Hub) applyLocked(changes []trace.Change) {
	if len(changes) == 0 {
		return
	}
	if h.changeLog.rows == nil {
		h.changeLog.rows = map[uint64]*trace.Row{}
	}
	var last *trace.Row
	for _, c := range changes {
		r := c.Row
		switch {
		case c.Op == trace.Evicted || r.Evicted():
			h.removeRowLocked(r)
		case c.Op == trace.Added:
			h.changeLog.rows[r.Seq] = r
			h.trackChildLocked(r)
			h.rowChangedLocked(r)
		case r != last:
			h.rowChangedLocked(r)
		}
		last = r
	}
	h.signalFeedsLocked()
}

// rowChangedLocked notes that a row has changed.
func (h *Hub) rowChangedLocked(r *trace.Row) {
	h.changeLog.add(r.Seq)
	root := r.Root()
	for s := range h.selections {
		s.reevaluateLocked(root)
	}
	if len(h.selections) > 0 && r.Session.Rows <= maxUndecidedRows {
		h.sessionChangedLocked(r.Session)
	}
}

// maxUndecidedRows is how many rows a session has at most when it may become known of which era and revision it is.
const maxUndecidedRows = 32

// sessionChangedLocked judges the rows of a young session again: what is known of it may have changed.
func (h *Hub) sessionChangedLocked(session *trace.Session) {
	rows := h.model.Rows()
	for _, r := range rows[max(0, len(rows)-2*maxUndecidedRows):] {
		if r.Session != session {
			continue
		}
		for s := range h.selections {
			if s.reevaluateLocked(r) {
				h.changeLog.add(r.Seq)
			}
		}
	}
}

// removeRowLocked forgets a row, and what is in it.
func (h *Hub) removeRowLocked(r *trace.Row) {
	if h.changeLog.rows[r.Seq] == nil {
		return
	}
	if r.Parent == nil {
		for s := range h.selections {
			s.remove(r)
		}
	}
	for x := range r.All() {
		if h.changeLog.rows[x.Seq] != nil {
			delete(h.changeLog.rows, x.Seq)
			h.changeLog.add(x.Seq)
		}
		delete(h.childLists, x)
	}
}

// childLists are the rows inside those that have many: the model does not tell when one of them makes room.
type childLists map[*trace.Row][]*trace.Row

// minTrackedChildren is how many rows inside another make it one that is watched: few enough that none has made room yet.
const minTrackedChildren = trace.DefaultMaxChildren / 2

// trackChildLocked looks for rows that have made room for a new one beside them.
func (h *Hub) trackChildLocked(r *trace.Row) {
	p := r.Parent
	if p == nil || len(p.Children) < minTrackedChildren {
		return
	}
	list, known := h.childLists[p]
	if !known {
		list = append([]*trace.Row(nil), p.Children...)
	} else {
		list = append(list, r)
	}
	for len(list) > 0 && list[0].Evicted() {
		h.removeRowLocked(list[0])
		list = list[1:]
	}
	h.childLists[p] = list
}
