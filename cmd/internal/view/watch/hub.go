package watch

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"mcpwire/cmd/internal/trace"
	"mcpwire/cmd/internal/trace/captures"
	"mcpwire/cmd/internal/trace/filter"
	"mcpwire/cmd/internal/trace/live"
	"mcpwire/internal/base/wait"
)

var (
	// ErrNoRestart is wrapped by the error of Restart for a capture whose tap is not running or
	// cannot restart its server.
	ErrNoRestart = errors.New("watch: the tap of this capture cannot restart its server")
	// ErrStopped is returned when Run has ended or was called before.
	ErrStopped = errors.New("watch: the hub has stopped")
)

// Options configures a [Hub]. A nil *Options means that it follows nothing until [Hub.Open].
type Options struct {
	// Dir is a folder of captures. The hub follows new ones as they appear. Empty means none.
	Dir string
	// SocketDir is the folder with the sockets of running taps: see live.Dir. Empty means none.
	SocketDir string
	// Files are further captures to follow.
	Files []string
	// MaxFinished limits the finished captures of Dir that are read, newest first. Zero means
	// none, -1 means all. Only with -1 are captures of probes read, and those of resent requests
	// that have ended.
	MaxFinished int
	// NoRules turns the rules off.
	NoRules bool
	// MaxRows limits the rows of the model. Zero means trace.DefaultMaxRows.
	MaxRows int
}

// A Hub follows captures and running taps and keeps a model of their traffic.
type Hub struct {
	opts Options
	id   string
	ring *ring

	// mu guards the model and the data derived from it.
	mu         sync.Mutex
	model      *trace.Model
	changeLog  changeLog
	feeds      map[*Feed]struct{}
	selections map[*Selection]struct{}
	// payloadSelections are the selections with payload terms. The slice is replaced, never
	// modified.
	payloadSelections []*Selection
	multiRow          map[eventKey][]uint64
	phase             phase
	// only selects the rows that the model keeps. Nil means all.
	only *Selection
	// first is one less than the number of the first row.
	first uint64
	// wholes counts the calls of SelectWhole that read files.
	wholes uint64
	// maxUnpacked limits the content of a compressed file. Zero means the default.
	maxUnpacked int64
	// ctx is the context of Run.
	ctx context.Context
	wg  sync.WaitGroup

	// sourcesMu guards the sources. It may be taken while mu is held, but not the reverse.
	sourcesMu sync.Mutex
	sources   []*source
	// older are the paths of finished captures that are not read.
	older        []string
	segments     map[string]*segment
	captureOrder []string
	// sourcesVersion counts the changes of the sources.
	sourcesVersion uint64
	// progressNoted is when noteProgress last notified the feeds.
	progressNoted time.Time
	// followedTaps are the sockets that have a followTap goroutine.
	followedTaps map[string]bool
}

// eventKey identifies an event.
type eventKey struct {
	capture string
	n       uint64
}

// A phase is the state of Run.
type phase uint8

const (
	idle phase = iota
	loading
	following
	stopped
)

// New returns a Hub that reads nothing before [Hub.Run]. opts may be nil.
func New(opts *Options) *Hub { return newHub(opts, nil, 0) }

// newHub returns a Hub that keeps only rows that match a filter, and rows that describe sessions. A
// nil filter keeps all. The numbers of the rows begin after first.
func newHub(opts *Options, only *filter.Filter, first uint64) *Hub {
	h := &Hub{
		id: rand.Text(), ring: newRing(maxRing), feeds: map[*Feed]struct{}{}, selections: map[*Selection]struct{}{}, multiRow: map[eventKey][]uint64{},
		segments: map[string]*segment{}, followedTaps: map[string]bool{},
	}
	if opts != nil {
		h.opts = *opts
	}
	h.first = first
	mopts := &trace.Options{MaxRows: h.opts.MaxRows, FirstSeq: first, NestForwarded: true}
	if only != nil {
		mopts.Keep = func(r *trace.Row) bool { return h.only.Has(r) || r.DescribesSession() }
	}
	h.model = trace.New(mopts)
	if only != nil {
		h.only = h.Select(only)
	}
	return h
}

// Run reads until ctx ends and waits for all of its goroutines. It returns [ErrStopped] if it was
// called before, and nil otherwise. [Hub.Sources] has the errors of the sources.
func (h *Hub) Run(ctx context.Context) error {
	h.mu.Lock()
	if h.phase != idle {
		h.mu.Unlock()
		return ErrStopped
	}
	h.phase, h.ctx = loading, ctx
	h.mu.Unlock()
	l := &dirScanner{hub: h, seen: map[string]bool{}, dir: polledDir{path: h.opts.Dir}, sockets: polledDir{path: h.opts.SocketDir}}
	past := l.initial()
	h.load(ctx, past)
	h.mu.Lock()
	h.phase = following
	h.mu.Unlock()
	if h.only != nil {
		h.only.searching.Store(false)
		h.signalFeeds()
		h.only.parent.noteProgress(true)
	}
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

// start runs f on a goroutine that Run waits for. It returns false if Run is not running.
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

// Read calls f with the model locked. Rows and the methods of Selections may be used only inside
// f.
func (h *Hub) Read(f func(m *trace.Model)) {
	h.mu.Lock()
	defer h.mu.Unlock()
	f(h.model)
}

// Loaded reports whether Run has read the captures that it found when it began, up to their last
// line of then. The sources are at most as many as these captures: two paths of one file are one
// source.
func (h *Hub) Loaded() bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.phase == following || h.phase == stopped
}

// HasSeq reports whether the hub gives this number to a row. Those of [Hub.SelectWhole] do not.
func (h *Hub) HasSeq(seq uint64) bool { return seq/wholeSeqs == h.first/wholeSeqs }

// SourcesVersion returns a number that changes with the result of [Hub.Sources].
func (h *Hub) SourcesVersion() uint64 {
	h.sourcesMu.Lock()
	defer h.sourcesMu.Unlock()
	return h.sourcesVersion
}

// ID returns a random text that identifies the hub. Versions of different hubs are unrelated.
func (h *Hub) ID() string { return h.id }

// Open follows a capture in addition to Options.Files. It does nothing if the capture is already
// followed. The error may be that of the system, wrap [capture.ErrNotCapture] or
// [capture.ErrVersion], or be [ErrStopped].
func (h *Hub) Open(path string) error { return h.OpenLimited(path, 0) }

// OpenLimited is like Open for an untrusted file: a compressed file is read up to maxUnpacked
// bytes of its content. Zero means the default of [capture.ReaderOptions].
func (h *Hub) OpenLimited(path string, maxUnpacked int64) error {
	if err := checkCapture(path); err != nil {
		return err
	}
	h.removeFailed(path)
	s, added := h.addFile(path, !captures.IsCompressed(path), maxUnpacked)
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

// Older returns the paths of the finished captures that are not read because of
// Options.MaxFinished, newest first. [Hub.Open] reads one. It returns nil before [Hub.Run] has
// found them.
func (h *Hub) Older() []string {
	h.sourcesMu.Lock()
	defer h.sourcesMu.Unlock()
	return slices.DeleteFunc(slices.Clone(h.older), func(path string) bool {
		return slices.ContainsFunc(h.sources, func(s *source) bool { return s.info.Path == path })
	})
}

// leaveOut removes a source. [Hub.Open] can read its file nevertheless.
func (h *Hub) leaveOut(s *source) {
	h.sourcesMu.Lock()
	defer h.sourcesMu.Unlock()
	h.sources = slices.DeleteFunc(h.sources, func(x *source) bool { return x == s })
	h.sourcesVersion++
}

// Restart asks the tap of a capture to restart its server. It does not wait for the restart. The
// error may wrap [ErrNoRestart].
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
	scanInterval     = 100 * time.Millisecond // between two scans of the folders
	fullScanInterval = 5 * time.Second        // maximum between two reads of a folder
	mtimeSlack       = 2 * time.Second        // age from which a folder's time is reliable
	maxTaps          = 256                    // followed at a time
)

// A dirScanner finds new files in the folders.
type dirScanner struct {
	hub *Hub
	// seen has the names in Dir.
	seen    map[string]bool
	dir     polledDir
	sockets polledDir
}

// A polledDir records when a folder was last read.
type polledDir struct {
	path     string
	modified time.Time
	read     time.Time
}

// mayHaveChanged reports whether the folder may have changed.
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

// initial returns the sources to read at the beginning.
func (ds *dirScanner) initial() (list []*source) {
	h := ds.hub
	for _, path := range h.opts.Files {
		s, added := h.addFile(path, !captures.IsCompressed(path), h.maxUnpacked)
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
		s, _ := h.addFile(h.opts.Dir, false, 0)
		s.claim()
		s.finish(err)
	}
	past := 0
	var older []string
	for _, info := range infos { // newest first
		ds.seen[filepath.Base(info.Path)] = true
		// A capture that has just been created may not be locked yet.
		writing := info.State == captures.Writing || info.State == captures.Truncated && time.Since(info.Modified).Abs() < mtimeSlack
		if !writing && h.opts.MaxFinished >= 0 {
			if !info.Observed() {
				continue
			}
			if past++; past > h.opts.MaxFinished {
				older = append(older, info.Path)
				continue
			}
		}
		if s, added := h.addFile(info.Path, writing, 0); added {
			s.captureStart, s.noProbe = info.Started, writing && h.opts.MaxFinished >= 0
			list = append(list, s)
		}
	}
	h.sourcesMu.Lock()
	defer h.sourcesMu.Unlock()
	h.older = older
	h.sourcesVersion++
	return list
}

// run scans until ctx ends.
func (ds *dirScanner) run(ctx context.Context) {
	for {
		ds.scanCaptures()
		ds.scanTaps()
		if !wait.Sleep(ctx, scanInterval) {
			return
		}
	}
}

func (ds *dirScanner) scanCaptures() {
	if !ds.dir.mayHaveChanged() {
		return
	}
	d, err := os.Open(ds.dir.path)
	if err != nil {
		return // it may come back
	}
	defer d.Close()
	names, _ := d.Readdirnames(-1) // use the names that could be read
	now := make(map[string]bool, len(names))
	for _, name := range names {
		if !captures.IsCapture(name) {
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
		if s, added := ds.hub.addFile(path, true, 0); added && s.claim() {
			s.noProbe = ds.hub.opts.MaxFinished >= 0
			ds.hub.start(s.run)
		}
	}
	ds.seen = now
}

func (ds *dirScanner) scanTaps() {
	if !ds.sockets.mayHaveChanged() {
		return
	}
	paths, err := live.List(ds.sockets.path)
	h := ds.hub
	if err != nil { // such as a folder that others can access
		if s, added := h.addFile(ds.sockets.path, false, 0); added {
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

const maxLog = 1 << 17 // changes kept

// A changeLog records which rows have changed, in order. The number of a change is the version of
// the model after it.
type changeLog struct {
	// ring has the Seq of the changed rows.
	ring    []uint64
	version uint64
	// rows are the rows in the model, by Seq.
	rows map[uint64]*trace.Row
}

func (l *changeLog) add(seq uint64) {
	l.version++
	if len(l.ring) < maxLog {
		l.ring = append(l.ring, seq)
		return
	}
	l.ring[(l.version-1)%maxLog] = seq
}

// at returns the Seq of the row that changed in a version.
func (l *changeLog) at(version uint64) uint64 { return l.ring[(version-1)%maxLog] }

// has reports whether all changes after a version are still known.
func (l *changeLog) has(after uint64) bool {
	return after <= l.version && l.version-after <= uint64(len(l.ring))
}

// applyLocked records the changes of the model. The caller must hold h.mu.
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
			h.rowChangedLocked(r)
		case c.Op == trace.Moved:
			for s := range h.selections {
				s.addHitsLocked(r.Root(), s.hits[r.Seq])
				s.remove(r)
			}
			h.rowChangedLocked(r)
		case r != last:
			h.rowChangedLocked(r)
		}
		last = r
	}
	h.signalFeedsLocked()
}

// rowChangedLocked records that a row has changed and reevaluates selections. The caller must hold
// h.mu.
func (h *Hub) rowChangedLocked(r *trace.Row) {
	root := r.Root()
	shown := h.only == nil || h.only.Has(root)
	for s := range h.selections {
		shown = s.reevaluateLocked(root) || shown
	}
	if shown {
		h.changeLog.add(r.Seq)
	}
	if len(h.selections) > 0 && r.Session.Rows <= maxUndecidedRows {
		h.sessionChangedLocked(r.Session)
	}
}

// maxUndecidedRows is the number of rows within which the era and revision of a session may become
// known.
const maxUndecidedRows = 32

// sessionChangedLocked reevaluates the rows of a new session, whose era or revision may have
// changed. The caller must hold h.mu.
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

// removeRowLocked removes a row and the rows inside it. The caller must hold h.mu.
func (h *Hub) removeRowLocked(r *trace.Row) {
	if h.changeLog.rows[r.Seq] == nil {
		return
	}
	shown := h.only == nil || h.only.Has(r)
	if r.Parent == nil {
		for s := range h.selections {
			if s.remove(r) {
				s.evicted++
			}
		}
	}
	for x := range r.All() {
		if h.changeLog.rows[x.Seq] != nil {
			delete(h.changeLog.rows, x.Seq)
			if shown {
				h.changeLog.add(x.Seq)
			}
		}
	}
}
