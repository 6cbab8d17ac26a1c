package watch

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"iter"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"mcpwire/capture"
	"mcpwire/check"
	"mcpwire/cmd/internal/trace"
	"mcpwire/cmd/internal/trace/captures"
	"mcpwire/cmd/internal/trace/filter"
	"mcpwire/cmd/internal/trace/live"
	"mcpwire/internal/rpc/traffic"
)

// A Source describes a capture or running tap that a Hub reads. As JSON, it is for the page.
type Source struct {
	// ID is the id of the capture, or of the last one in the file. It is empty until known.
	ID string `json:"id"`
	// Path is the absolute path of the file. Empty means none. A compressed file is not read while
	// its tap runs.
	Path string `json:"path,omitempty"`
	// Name is the name of the server.
	Name string `json:"name,omitempty"`
	// Transport is that of the head. Empty means unknown.
	Transport capture.Transport `json:"transport,omitempty"`
	State     State             `json:"state,omitempty"`
	// Err says why reading failed. Empty means no error.
	Err string `json:"err,omitempty"`
	// Read is the number of bytes read so far. Size is the known number of bytes.
	Read int64 `json:"read,omitempty"`
	Size int64 `json:"size,omitempty"`
	// CanRestart reports whether [Hub.Restart] can succeed.
	CanRestart bool `json:"restart,omitempty"`
	// Intercepted is what the tap holds. It is nil unless the tap runs with --intercept. It must
	// not be modified.
	Intercepted *live.Intercepted `json:"held,omitempty"`
}

// A State says whether more events may come from a source.
type State string

// The states of a source.
const (
	Live      State = "live"       // its tap is running
	Growing   State = "growing"    // it is being written or still being read
	Complete  State = "complete"   // it was read to its last line
	Truncated State = "broken off" // no one writes it, and its last line is missing
)

const (
	maxSources  = 4096
	maxSegments = 4096
)

// A source reads one file or tap.
type source struct {
	hub *Hub
	// path is empty for a tap without a file that can be followed.
	path       string
	compressed bool
	// follow means to wait at the end of a file that may grow.
	follow       bool
	captureStart time.Time
	// noProbe means that the file is left out if it is the capture of a probe.
	noProbe bool

	// maxUnpacked limits the content read from a compressed file, in bytes. Zero means the
	// default.
	maxUnpacked int64

	// The fields below, up to ended, are guarded by hub.sourcesMu.
	info Source
	conn *live.Conn
	// socket is the path of the tap's socket.
	socket      string
	everWritten bool
	// file identifies the file that was opened.
	file fs.FileInfo
	// claimed means that a goroutine reads the source.
	claimed bool
	ended   bool

	// wake has a buffer of one element. It wakes the goroutine that follows the file.
	wake chan struct{}

	// The fields below belong to the goroutine that reads the source.
	f *os.File
	// tail is nil for a compressed file.
	tail   *tailer
	reader *capture.Reader
	next   func() (*capture.Event, error, bool)
	stop   func()
	// limit is the size of the file when it was opened.
	limit   int64
	segment *segment
	head    *capture.Head
	checker *check.Checker
	// parsed is the current event with its parsed payload, frame.
	parsed capture.Event
	frame  traffic.Frame
	// last is the number of the last event.
	last     uint64
	tailSeen bool
	// validated means that the beginning is that of a capture.
	validated bool

	// events counts the ingested events. hub.mu guards it.
	events int
}

// A segment is a capture in a source.
type segment struct {
	source *source
	id     string
	// head is nil if the capture has no head.
	head  *capture.Head
	index index
}

// addFile adds a file, or returns the source that reads it already. follow means that the file may
// grow. At most maxUnpacked bytes of the content of a compressed file are read. Zero means the
// default of [capture.ReaderOptions].
func (h *Hub) addFile(path string, follow bool, maxUnpacked int64) (s *source, added bool) {
	if abs, err := filepath.Abs(path); err == nil {
		path = abs
	}
	info, _ := os.Stat(path) // nil if the file does not exist
	h.sourcesMu.Lock()
	defer h.sourcesMu.Unlock()
	for _, s := range h.sources {
		if (s.path == path || info != nil && s.file != nil && os.SameFile(s.file, info)) && !s.replacedLocked(info) {
			return s, false
		}
	}
	s = &source{hub: h, path: path, file: info, maxUnpacked: maxUnpacked, compressed: !strings.HasSuffix(path, capture.Suffix) && captures.IsCompressed(path), follow: follow}
	h.addSourceLocked(s)
	return s, true
}

// replacedLocked reports whether the file was replaced after it was read to its end. The caller
// must hold hub.sourcesMu.
func (s *source) replacedLocked(now fs.FileInfo) bool {
	return s.ended && now != nil && s.file != nil && s.info.ID != "" && (!os.SameFile(s.file, now) || now.Size() < s.info.Size)
}

// removeFailed removes a file that could not be read, so that it can be added again.
func (h *Hub) removeFailed(path string) {
	if abs, err := filepath.Abs(path); err == nil {
		path = abs
	}
	h.sourcesMu.Lock()
	defer h.sourcesMu.Unlock()
	h.sources = slices.DeleteFunc(h.sources, func(s *source) bool { return s.path == path && s.ended && s.info.Err != "" && s.info.ID == "" })
}

// addSourceLocked adds a source. The caller must hold h.sourcesMu.
func (h *Hub) addSourceLocked(s *source) {
	s.wake = make(chan struct{}, 1)
	s.info.Path, s.info.State = s.path, Growing
	if len(h.sources) >= maxSources {
		if i := slices.IndexFunc(h.sources, func(s *source) bool { return s.ended }); i >= 0 {
			h.sources = slices.Delete(h.sources, i, i+1)
		}
	}
	h.sources = append(h.sources, s)
	h.sourcesVersion++
}

// claimUnstarted claims and returns the sources that no goroutine reads yet.
func (h *Hub) claimUnstarted() (list []*source) {
	h.sourcesMu.Lock()
	defer h.sourcesMu.Unlock()
	for _, s := range h.sources {
		if !s.claimed {
			s.claimed = true
			list = append(list, s)
		}
	}
	return list
}

// claim claims the source for the caller. It returns false if it was claimed before.
func (s *source) claim() bool {
	s.hub.sourcesMu.Lock()
	defer s.hub.sourcesMu.Unlock()
	was := s.claimed
	s.claimed = true
	return !was
}

// Sources returns the sources that the hub reads or has read, in the order of discovery. It may be
// called inside [Hub.Read].
func (h *Hub) Sources() []Source {
	h.sourcesMu.Lock()
	defer h.sourcesMu.Unlock()
	list := make([]Source, 0, len(h.sources))
	for _, s := range h.sources {
		list = append(list, s.info)
	}
	return list
}

// Head returns the head of a capture, or nil if it is unknown. The caller must not modify it. Head
// may be called inside [Hub.Read].
func (h *Hub) Head(captureID string) *capture.Head {
	h.sourcesMu.Lock()
	defer h.sourcesMu.Unlock()
	if c := h.segments[captureID]; c != nil {
		return c.head
	}
	return nil
}

// update changes the info of a source and signals a change.
func (s *source) update(f func(i *Source)) {
	h := s.hub
	h.sourcesMu.Lock()
	before := s.info
	f(&s.info)
	changed := before != s.info
	if changed {
		h.sourcesVersion++
	}
	h.sourcesMu.Unlock()
	if changed {
		h.signalFeeds()
	}
}

func (s *source) open(ctx context.Context) error {
	f, info, err := openRegular(s.path)
	if err != nil {
		return err
	}
	s.f = f
	s.hub.sourcesMu.Lock()
	s.file = info
	s.info.Size = info.Size()
	s.hub.sourcesMu.Unlock()
	opts := &capture.ReaderOptions{MaxUnpacked: s.maxUnpacked}
	if s.compressed {
		s.reader = capture.NewReader(&countingReader{f, s.addProgress}, opts)
	} else {
		s.tail = &tailer{ctx: ctx, f: f, buf: make([]byte, tailBuffer), waitMore: s.waitMore}
		s.reader = capture.NewReader(s.tail, opts)
	}
	s.next, s.stop = iter.Pull2(s.reader.Events())
	return nil
}

// openRegular opens a regular file. It returns an error for other files and never blocks on them.
func openRegular(path string) (*os.File, fs.FileInfo, error) {
	f, err := os.OpenFile(path, os.O_RDONLY|nonblock, 0)
	if err != nil {
		return nil, nil, err
	}
	info, err := f.Stat()
	if err == nil && !info.Mode().IsRegular() {
		err = fmt.Errorf("%w: not a regular file", capture.ErrNotCapture)
	}
	if err != nil {
		f.Close()
		return nil, nil, err
	}
	return f, info, nil
}

// checkCapture returns an error if a file does not begin like a capture. An empty file is valid.
func checkCapture(path string) error {
	f, _, err := openRegular(path)
	if err != nil {
		return err
	}
	defer f.Close()
	r := capture.NewReader(f, &capture.ReaderOptions{MaxLine: 1 << 20})
	defer r.Close()
	for e, err := range r.Events() {
		switch {
		case err != nil:
			return err
		case e.Kind == capture.KindGap && e.Gap.Why == capture.GapMalformed:
			return capture.ErrNotCapture
		}
		break
	}
	return nil
}

func (s *source) close() {
	if s.stop != nil {
		s.stop()
		s.stop = nil
	}
	if s.reader != nil {
		s.reader.Close()
	}
	if s.f != nil {
		s.f.Close()
		s.f = nil
	}
}

// run reads the source to its end.
func (s *source) run(ctx context.Context) {
	if s.next == nil {
		if err := s.waitStable(ctx); err != nil {
			s.finish(err)
			return
		}
		if err := s.open(ctx); err != nil {
			s.finish(err)
			return
		}
	}
	for {
		e, err := s.nextEvent()
		if ctx.Err() != nil {
			s.close()
			return
		}
		if e != nil {
			err = s.ingest(ctx, e)
		}
		if e == nil || err != nil {
			s.finish(err)
			return
		}
	}
}

// nextEvent reads the next event. It returns nil at the end.
func (s *source) nextEvent() (*capture.Event, error) {
	e, err, ok := s.next()
	if !ok || err != nil {
		return nil, err
	}
	if !s.validated && e.Kind == capture.KindGap && e.Gap.Why == capture.GapMalformed {
		return nil, capture.ErrNotCapture
	}
	s.validated = true
	return e, nil
}

// finish marks the source as ended. err may be nil.
func (s *source) finish(err error) {
	defer s.close()
	if s.hub.stopping() {
		return
	}
	s.closeSegment()
	if errors.Is(err, errProbe) {
		s.hub.leaveOut(s)
		return
	}
	s.update(func(i *Source) {
		s.ended = true
		i.CanRestart = false
		i.State = Truncated
		if s.tailSeen {
			i.State = Complete
		}
		if s.tail != nil {
			i.Read = s.tail.off
		}
		if err != nil {
			i.Err = err.Error()
			if pe, ok := errors.AsType[*fs.PathError](err); ok {
				i.Err = pe.Err.Error()
			}
		}
	})
}

func (h *Hub) stopping() bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.ctx != nil && h.ctx.Err() != nil
}

// errProbe is the error for a capture that is left out.
var errProbe = errors.New("the capture of a probe")

// errDuplicate is the error for a capture that is already read.
var errDuplicate = errors.New("the capture is already read from another file, or appears twice in this one")

const progressEvents = 256 // events between progress reports

// ingest adds an event to the model. Rules and searches run before it takes the lock.
func (s *source) ingest(ctx context.Context, e *capture.Event) error {
	if e.Head != nil || s.segment == nil {
		if err := s.beginSegment(e.Head); err != nil {
			return err
		}
	}
	e.Capture = s.segment.id
	if s.tail != nil && s.addToIndex(e) {
		s.setProgress(s.tail.off, -1)
	}
	if e.Kind == capture.KindTail {
		s.tailSeen = true
	}
	parsed := s.parse(e)
	var findings []check.Finding
	if s.checker != nil {
		findings = s.checker.Add(s.head, parsed)
	}
	h := s.hub
	found := h.scan(ctx, parsed)
	small := truncateLarge(parsed)
	h.mu.Lock()
	defer h.mu.Unlock()
	changes := h.model.Add(s.head, small)
	h.assignHitsLocked(e, changes, found)
	h.applyLocked(changes)
	h.addFindingsLocked(s.segment.id, findings)
	s.events++
	s.last = max(s.last, e.N)
	return nil
}

// parse returns a copy of the event with its parsed payload, for all who look at it. It is valid
// until the next event. The event itself may be kept.
func (s *source) parse(e *capture.Event) *capture.Event {
	s.parsed = *e
	if e.Kind == capture.KindMessage && !e.Cut {
		s.parsed.Frame = e.Frame.Or(&s.frame, e.Data)
	}
	return &s.parsed
}

// addToIndex adds the event to the index, and reports whether a progress report is due.
func (s *source) addToIndex(e *capture.Event) bool {
	h := s.hub
	h.sourcesMu.Lock()
	defer h.sourcesMu.Unlock()
	x := &s.segment.index
	x.add(e.N, s.tail.line)
	return x.events%progressEvents == 0
}

// beginSegment begins a capture. head may be nil.
func (s *source) beginSegment(head *capture.Head) error {
	s.closeSegment()
	h := s.hub
	if head != nil && s.noProbe && (&captures.Info{Name: head.Name, Tool: head.Tool}).IsProbe() {
		return errProbe
	}
	id := ""
	if head != nil {
		id = head.ID
	}
	if id == "" { // make up a unique id
		id = fmt.Sprintf("%s/%p", h.id, s)
	}
	seg := &segment{source: s, id: id, head: head}
	h.sourcesMu.Lock()
	if h.segments[id] != nil {
		h.sourcesMu.Unlock()
		return errDuplicate
	}
	if len(h.captureOrder) >= maxSegments {
		delete(h.segments, h.captureOrder[0])
		h.captureOrder = slices.Delete(h.captureOrder, 0, 1)
	}
	h.segments[id] = seg
	h.captureOrder = append(h.captureOrder, id)
	h.sourcesMu.Unlock()
	s.segment, s.head, s.tailSeen = seg, head, false
	h.mu.Lock()
	s.last = 0
	h.mu.Unlock()
	if head == nil {
		s.head = &capture.Head{ID: id}
	}
	if !h.opts.NoRules {
		s.checker = check.New(nil)
	}
	s.update(func(i *Source) {
		i.ID = id
		if head != nil {
			i.Name, i.Transport = head.Name, head.Transport
		}
	})
	return nil
}

// closeSegment ends the current capture: its pending requests become unanswered.
func (s *source) closeSegment() {
	if s.segment == nil {
		return
	}
	var findings []check.Finding
	if s.checker != nil {
		findings = s.checker.Close()
		s.checker = nil
	}
	h := s.hub
	h.mu.Lock()
	defer h.mu.Unlock()
	h.addFindingsLocked(s.segment.id, findings)
	h.applyLocked(h.model.FinishCapture(s.segment.id))
	s.segment = nil
}

// addFindingsLocked adds findings to the rows. The caller must hold h.mu.
func (h *Hub) addFindingsLocked(captureID string, findings []check.Finding) {
	for i := range findings {
		f := &findings[i]
		h.applyLocked(h.model.AddFinding(captureID, f.Event, trace.Finding{
			Rule: f.Rule.ID, Severity: f.Rule.Severity.String(), Message: f.Message, Pointer: f.Pointer, URL: f.Rule.URL,
		}))
	}
}

// payloadHits are the hits of a selection's filter in a payload.
type payloadHits struct {
	selection *Selection
	hits      filter.Hits
}

// scan matches the payload of an event with the payload terms of all selections.
func (h *Hub) scan(ctx context.Context, e *capture.Event) []payloadHits {
	if !searchable(e) {
		return nil
	}
	h.mu.Lock()
	selections := h.payloadSelections
	h.mu.Unlock()
	if len(selections) == 0 {
		return nil
	}
	list := make([]payloadHits, len(selections))
	for i, s := range selections {
		list[i] = payloadHits{s, trace.Scan(ctx, s.filter, e, e.Frame)}
	}
	return list
}

// searchable reports whether an event has anything that payload terms can match.
func searchable(e *capture.Event) bool {
	return len(e.Data) > 0 || e.Request != nil || e.Response != nil
}

// maxMultiRow limits the events in Hub.multiRow. Most of them are batches and events of long
// streams.
const maxMultiRow = 1 << 16

// assignHitsLocked adds the hits of an event to the rows that it changed. The caller must hold
// h.mu.
func (h *Hub) assignHitsLocked(e *capture.Event, changes []trace.Change, list []payloadHits) {
	if !searchable(e) || len(changes) == 0 {
		return
	}
	h.addMultiRowLocked(e, changes)
	for _, s := range h.payloadSelections {
		i := slices.IndexFunc(list, func(f payloadHits) bool { return f.selection == s })
		var hits filter.Hits
		if i >= 0 {
			hits = list[i].hits
		} else { // added since scan
			hits = trace.Scan(h.ctx, s.filter, e, e.Frame)
		}
		if hits == 0 {
			continue
		}
		for _, c := range changes {
			if c.Op == trace.Added || c.Op == trace.Updated {
				s.addHitsLocked(c.Row.Root(), hits)
			}
		}
	}
}

// addMultiRowLocked records the root rows of an event if the model cannot tell them later. The
// model knows only the first row of an event, and no row for the later of a row's many events. The
// caller must hold h.mu.
func (h *Hub) addMultiRowLocked(e *capture.Event, changes []trace.Change) {
	known := h.model.Find(e.Capture, e.N)
	if known != nil && len(changes) < 2 {
		return
	}
	var roots []uint64
	for _, c := range changes {
		if r := c.Row.Root(); (c.Op == trace.Added || c.Op == trace.Updated) && !slices.Contains(roots, r.Seq) && len(roots) < 256 {
			roots = append(roots, r.Seq)
		}
	}
	if len(roots) == 0 || known != nil && len(roots) == 1 && roots[0] == known.Root().Seq {
		return
	}
	if len(h.multiRow) >= maxMultiRow {
		for k := range h.multiRow { // any one
			delete(h.multiRow, k)
			break
		}
	}
	h.multiRow[eventKey{e.Capture, e.N}] = roots
}

const progressInterval = 250 * time.Millisecond // minimum between progress reports

// setProgress sets the bytes read and the size of a source. A size of -1 means unknown.
func (s *source) setProgress(read, size int64) {
	s.hub.sourcesMu.Lock()
	s.info.Read = read
	s.info.Size = max(s.info.Size, size, read)
	s.hub.sourcesMu.Unlock()
	s.hub.noteProgress(false)
}

// addProgress adds to the bytes read of a source.
func (s *source) addProgress(n int64) {
	s.hub.sourcesMu.Lock()
	s.info.Read += n
	s.info.Size = max(s.info.Size, s.info.Read)
	s.hub.sourcesMu.Unlock()
	s.hub.noteProgress(false)
}

// noteProgress notifies the feeds of the progress of the sources. It does nothing if it did so
// shortly before, unless done is set.
func (h *Hub) noteProgress(done bool) {
	h.sourcesMu.Lock()
	due := done
	if now := time.Now(); now.Sub(h.progressNoted) >= progressInterval {
		h.progressNoted, due = now, true
	}
	if due {
		h.sourcesVersion++
	}
	h.sourcesMu.Unlock()
	if due {
		h.signalFeeds()
	}
}
