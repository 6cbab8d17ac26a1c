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
	"mcpwire/internal/trace"
	"mcpwire/internal/trace/filter"
	"mcpwire/internal/trace/live"
)

// A Source is a capture, or a running tap, that a Hub reads.
type Source struct {
	ID         string // of the capture; "" as long as it is not known. Of several in one file, the last
	Path       string // of the file, absolute; "" if there is none. One that is compressed is not read while its tap runs
	Name       string // of the server
	Transport  string // "stdio", "http", "sse"
	State      State
	Err        string // why it is not read, or not read any further; "" if nothing went wrong
	Read, Size int64  // bytes that were read so far, and that there are as far as is known
	CanRestart bool   // see [Hub.Restart]
}

// A State says whether more is to come from a source.
type State string

// The states of a source.
const (
	Live      State = "live"       // its tap runs
	Growing   State = "growing"    // somebody writes it, or it is still being read
	Complete  State = "complete"   // all of it was read, and there will be no more
	Truncated State = "broken off" // nobody writes it any more, and the last line is missing
)

const (
	maxSources  = 4096
	maxSegments = 4096
)

// A source is what is read of one file or tap.
type source struct {
	hub          *Hub
	path         string // "" for a tap without a file
	compressed   bool
	follow       bool // go on at the end, if somebody may still write it
	captureStart time.Time

	maxUnpacked int64 // bytes that come out of a compressed file; 0 is the default

	// These are under hub.smu.
	info        Source
	conn        *live.Conn // to the tap
	everWritten bool
	file        fs.FileInfo // which file it was
	claimed     bool        // somebody reads it
	ended       bool

	wake chan struct{} // one element

	// These belong to the one who reads it.
	f         *os.File
	tail      *tailer // nil if compressed
	reader    *capture.Reader
	next      func() (*capture.Event, error, bool)
	stop      func()
	limit     int64 // in the file: what was there at the beginning
	segment   *segment
	head      *capture.Head
	checker   *check.Checker
	last      uint64 // number of the last event
	tailSeen  bool
	validated bool // it has begun like a capture

	events int // taken. hub.mu holds it
}

// A segment is a capture in a source.
type segment struct {
	source *source
	id     string
	head   *capture.Head // nil: it has none
	index  index
}

// addFile adds a file, unless it is there: then it returns what is. follow tells whether more may come.
func (h *Hub) addFile(path string, follow bool) (s *source, added bool) {
	return h.addFileLimited(path, follow, 0)
}

// addFileLimited is addFile for a file of which, if it is compressed, no more than maxUnpacked bytes are
// to come. Zero is the default of [capture.ReaderOptions].
func (h *Hub) addFileLimited(path string, follow bool, maxUnpacked int64) (s *source, added bool) {
	if abs, err := filepath.Abs(path); err == nil {
		path = abs
	}
	info, _ := os.Stat(path) // nil: it does not exist, and no other is the same
	h.sourcesMu.Lock()
	defer h.sourcesMu.Unlock()
	for _, s := range h.sources {
		if (s.path == path || info != nil && s.file != nil && os.SameFile(s.file, info)) && !s.replacedLocked(info) {
			return s, false
		}
	}
	s = &source{hub: h, path: path, file: info, maxUnpacked: maxUnpacked, compressed: !strings.HasSuffix(path, capture.Suffix) && compressed(path), follow: follow}
	h.addSourceLocked(s)
	return s, true
}

// replacedLocked reports whether another file stands where one was that was read to its end. hub.smu is held.
func (s *source) replacedLocked(now fs.FileInfo) bool {
	return s.ended && now != nil && s.file != nil && s.info.ID != "" && (!os.SameFile(s.file, now) || now.Size() < s.info.Size)
}

func compressed(path string) bool {
	return strings.HasSuffix(path, ".gz") || strings.HasSuffix(path, ".zst")
}

// removeFailed forgets a file that could not be read, so that it can be added again.
func (h *Hub) removeFailed(path string) {
	if abs, err := filepath.Abs(path); err == nil {
		path = abs
	}
	h.sourcesMu.Lock()
	defer h.sourcesMu.Unlock()
	h.sources = slices.DeleteFunc(h.sources, func(s *source) bool { return s.path == path && s.ended && s.info.Err != "" && s.info.ID == "" })
}

// addSourceLocked adds a source. h.smu is held.
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

// claimUnstarted returns the sources that nobody reads yet, and says that somebody does.
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

// claim says that the caller reads the source, and reports whether nobody did.
func (s *source) claim() bool {
	s.hub.sourcesMu.Lock()
	defer s.hub.sourcesMu.Unlock()
	was := s.claimed
	s.claimed = true
	return !was
}

// Sources returns what the hub reads, or has read, in the order in which it was found. It may be called inside Read.
func (h *Hub) Sources() []Source {
	h.sourcesMu.Lock()
	defer h.sourcesMu.Unlock()
	list := make([]Source, 0, len(h.sources))
	for _, s := range h.sources {
		list = append(list, s.info)
	}
	return list
}

// Head returns the head of a capture, which must not be changed, or nil if it is not known. It may be called inside Read.
func (h *Hub) Head(captureID string) *capture.Head {
	h.sourcesMu.Lock()
	defer h.sourcesMu.Unlock()
	if c := h.segments[captureID]; c != nil {
		return c.head
	}
	return nil
}

// update changes what Sources says of a source.
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

// open opens the file.
func (s *source) open() error {
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
		s.reader = capture.NewReader(&countingReader{r: f, source: s}, opts)
	} else {
		s.tail = newTailer(f, s.waitMore)
		s.reader = capture.NewReader(s.tail, opts)
	}
	s.next, s.stop = iter.Pull2(s.reader.Events())
	return nil
}

// openRegular opens a file if it is a regular one. It does not hang at one that is not.
func openRegular(path string) (*os.File, fs.FileInfo, error) {
	f, err := os.OpenFile(path, os.O_RDONLY|nonblock, 0)
	if err != nil {
		return nil, nil, err
	}
	info, err := f.Stat()
	if err == nil && !info.Mode().IsRegular() {
		err = fmt.Errorf("%w: it is no regular file", capture.ErrNotCapture)
	}
	if err != nil {
		f.Close()
		return nil, nil, err
	}
	return f, info, nil
}

// checkCapture returns an error if the beginning of a file is not that of a capture. An empty file may become one.
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

// close lets go of the file.
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

// run reads to the end, whenever that comes.
func (s *source) run(ctx context.Context) {
	if s.tail != nil {
		s.tail.ctx = ctx
	}
	if s.next == nil {
		if err := s.waitStable(ctx); err != nil {
			s.finish(err)
			return
		}
		if err := s.open(); err != nil {
			s.finish(err)
			return
		}
		if s.tail != nil {
			s.tail.ctx = ctx
		}
	}
	for ctx.Err() == nil {
		if more, err := s.readEvent(ctx); !more {
			s.finish(err)
			return
		}
	}
	s.close()
}

// readEvent takes the next event. more is false at the end.
func (s *source) readEvent(ctx context.Context) (more bool, err error) {
	e, err, ok := s.next()
	if !ok || err != nil || ctx.Err() != nil {
		return false, err
	}
	if !s.validated && e.Kind == capture.KindGap && e.Gap.Why == capture.GapMalformed {
		return false, capture.ErrNotCapture
	}
	s.validated = true
	if err := s.ingest(ctx, e); err != nil {
		return false, err
	}
	return true, nil
}

// finish says that nothing more comes.
func (s *source) finish(err error) {
	defer s.close()
	if s.hub.stopping() {
		return
	}
	s.closeSegment()
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

// errDuplicate says that a capture is there already.
var errDuplicate = errors.New("the same capture is read from another file, or is in this one twice")

const progressEvents = 256 // events between two looks at how far a source was read

// ingest takes an event into the model. The lock is held for the model only: rules and searches work before.
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
	var findings []check.Finding
	if s.checker != nil {
		findings = s.checker.Add(s.head, e)
	}
	h := s.hub
	found := h.scan(ctx, e)
	small := truncateLarge(e)
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

// addToIndex notes where the event stands, and reports whether it is time to tell how far the source was read.
func (s *source) addToIndex(e *capture.Event) bool {
	h := s.hub
	h.sourcesMu.Lock()
	defer h.sourcesMu.Unlock()
	x := &s.segment.index
	x.add(e.N, s.tail.line)
	return x.events%progressEvents == 0
}

// beginSegment begins a capture. head is nil if it has none.
func (s *source) beginSegment(head *capture.Head) error {
	s.closeSegment()
	h := s.hub
	id := ""
	if head != nil {
		id = head.ID
	}
	if id == "" { // it gets one that nobody else has
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
		s.checker = check.New(h.opts.Rules)
	}
	s.update(func(i *Source) {
		i.ID = id
		if head != nil {
			i.Name, i.Transport = head.Name, head.Transport
		}
	})
	return nil
}

// closeSegment ends the capture that is being read: what waits in it is unanswered.
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

// addFindingsLocked notes findings on the rows. h.mu is held.
func (h *Hub) addFindingsLocked(captureID string, findings []check.Finding) {
	for i := range findings {
		f := &findings[i]
		h.applyLocked(h.model.AddFinding(captureID, f.Event, trace.Finding{
			Rule: f.Rule.ID, Severity: f.Rule.Severity.String(), Message: f.Message, Pointer: f.Pointer, URL: f.Rule.URL,
		}))
	}
}

// A found is what a selection's filter found in a payload.
type payloadHits struct {
	selection *Selection
	hits      filter.Hits
}

// scan looks for what selections look for in payloads.
func (h *Hub) scan(ctx context.Context, e *capture.Event) []payloadHits {
	if len(e.Data) == 0 {
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
		list[i] = payloadHits{s, s.filter.Scan(ctx, e.Data)}
	}
	return list
}

// maxMultiRow bounds the events of which it is known that they belong to several rows, or to one that has many events: batches and long streams, for the most part.
const maxMultiRow = 1 << 16

// assignHitsLocked notes what was found in an event on the rows that it changed. h.mu is held.
func (h *Hub) assignHitsLocked(e *capture.Event, changes []trace.Change, list []payloadHits) {
	if len(e.Data) == 0 || len(changes) == 0 {
		return
	}
	h.addMultiRowLocked(e, changes)
	for _, s := range h.payloadSelections {
		i := slices.IndexFunc(list, func(f payloadHits) bool { return f.selection == s })
		var hits filter.Hits
		if i >= 0 {
			hits = list[i].hits
		} else { // it has come in between
			hits = s.filter.Scan(h.ctx, e.Data)
		}
		if hits == 0 {
			continue
		}
		for _, c := range changes {
			if c.Op != trace.Evicted {
				s.addHitsLocked(c.Row.Root(), hits)
			}
		}
	}
}

// addMultiRowLocked notes which rows of the timeline an event belongs to if the model does not tell: it knows the first only, and none for the later ones of many events of a row.
func (h *Hub) addMultiRowLocked(e *capture.Event, changes []trace.Change) {
	known := h.model.Find(e.Capture, e.N)
	if known != nil && len(changes) < 2 {
		return
	}
	var roots []uint64
	for _, c := range changes {
		if r := c.Row.Root(); c.Op != trace.Evicted && !slices.Contains(roots, r.Seq) && len(roots) < 256 {
			roots = append(roots, r.Seq)
		}
	}
	if len(roots) == 0 || known != nil && len(roots) == 1 && roots[0] == known.Root().Seq {
		return
	}
	if len(h.multiRow) >= maxMultiRow {
		for k := range h.multiRow { // whichever
			delete(h.multiRow, k)
			break
		}
	}
	h.multiRow[eventKey{e.Capture, e.N}] = roots
}

// progressLimiter keeps the news of how far sources are read from coming too often.
type progressLimiter struct{ last time.Time }

const progressInterval = 250 * time.Millisecond

// setProgress notes how far a source was read, and how large it is; -1 if that is not known.
func (s *source) setProgress(read, size int64) {
	h := s.hub
	h.sourcesMu.Lock()
	s.info.Read = read
	s.info.Size = max(s.info.Size, size, read)
	news := h.progressDueLocked()
	h.sourcesMu.Unlock()
	if news {
		h.signalFeeds()
	}
}

// addProgress adds to how far a source was read.
func (s *source) addProgress(n int64) {
	h := s.hub
	h.sourcesMu.Lock()
	s.info.Read += n
	s.info.Size = max(s.info.Size, s.info.Read)
	news := h.progressDueLocked()
	h.sourcesMu.Unlock()
	if news {
		h.signalFeeds()
	}
}

// progressDueLocked reports whether it is time to tell of progress. h.smu is held.
func (h *Hub) progressDueLocked() bool {
	now := time.Now()
	if now.Sub(h.progress.last) < progressInterval {
		return false
	}
	h.progress.last = now
	h.sourcesVersion++
	return true
}
