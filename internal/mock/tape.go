package mock

import (
	"errors"
	"fmt"
	"iter"
	"slices"

	"mcpwire/capture"
	"mcpwire/internal/era"
	"mcpwire/mcp"
)

var (
	// ErrTooLarge is wrapped by the error for a capture that has more to say than is held in memory, see [ReadOptions].
	ErrTooLarge = errors.New("mock: the capture is too large")
	// ErrNothing is returned for a capture without a request that was answered, or whose revision nobody can tell.
	ErrNothing = errors.New("mock: the capture has no handshake that was answered, and no request of a revision without one")
)

// DefaultMaxBytes is how much of a capture is held by default.
const DefaultMaxBytes = 256 << 20

// ReadOptions are the options of [Read]. nil means defaults.
type ReadOptions struct {
	// MaxBytes is how many bytes of memory a Recording may take, about: for messages of the server, and some for each request. 0 is [DefaultMaxBytes].
	MaxBytes int
}

// A Recording is what a capture has of a server. It does not change.
type Recording struct {
	Name  string // of the server, as the head of the capture has it
	Notes Notes

	sessions []*session
	methods  map[methodKey]*method
	modern   []mcp.Revision // that requests were answered in, in ascending order
	legacy   []mcp.Revision // that handshakes agreed on
	streams  bool           // most answers came in event streams
	lenient  bool           // the server answered before the handshake was complete
}

// Notes are what is worth knowing about a Recording before it is used.
type Notes struct {
	Requests   int    // that were answered, or that HTTP refused
	Unanswered int    // others
	Redacted   int    // values of the server's messages that were hidden when they were recorded
	Missing    uint64 // events that are missing in the capture; at least so many
	Truncated  int    // messages that are not in it as a whole
	Stray      int    // lines of the server that are no messages. They are not sent
	Unclaimed  int    // messages of the server that belong to nothing that is known. They are not sent either
}

// A methodKey names a method in one of the eras: what the same request gets is not the same.
type methodKey struct {
	modern bool
	name   string
}

// A method is all requests of one method.
type method struct {
	all       []*exchange
	byParams  map[lookupKey][]*exchange
	byTarget  map[lookupKey][]*exchange
	masks     []*mask // that they have, by their numbers
	maskTexts []string
}

// A lookupKey is what requests are looked up by: their params as far as a mask leaves them, or their target.
type lookupKey struct {
	isInputRound bool
	mask         int
	params       sum
	target       string
}

// maxMasks is how many different masks the requests of one method may have: each is one more way to look at a request. The others match exactly, or not at all.
const maxMasks = 64

// Open reads the capture in a file.
func Open(name string, opts *ReadOptions) (*Recording, error) {
	r, err := capture.Open(name, nil)
	if err != nil {
		return nil, err
	}
	defer r.Close()
	return Read(r.Events(), opts)
}

// Read reads a capture. opts may be nil. The error is that of events, or wraps [ErrTooLarge] or [ErrNothing].
func Read(events iter.Seq2[*capture.Event, error], opts *ReadOptions) (*Recording, error) {
	limit := DefaultMaxBytes
	if opts != nil && opts.MaxBytes > 0 {
		limit = opts.MaxBytes
	}
	rd := newReader(limit)
	for e, err := range events {
		if err != nil {
			return nil, err
		}
		rd.add(e)
		if rd.heldBytes > limit {
			return nil, fmt.Errorf("%w: the server's part of it takes more than %d MiB of memory", ErrTooLarge, limit>>20)
		}
	}
	t := rd.finish()
	if t.Notes.Requests == 0 || len(t.Revisions()) == 0 {
		return nil, ErrNothing
	}
	return t, nil
}

// Revisions returns those in which the capture has answers, in ascending order.
func (r *Recording) Revisions() []mcp.Revision { return append(slices.Clone(r.legacy), r.modern...) }

// put lists an entry.
func (r *Recording) put(x *exchange, spelt string) {
	key := methodKey{x.modern, x.method}
	m := r.methods[key]
	if m == nil {
		m = &method{byParams: map[lookupKey][]*exchange{}, byTarget: map[lookupKey][]*exchange{}, masks: []*mask{nil}, maskTexts: []string{""}}
		r.methods[key] = m
	}
	m.all = append(m.all, x)
	i := slices.Index(m.maskTexts, spelt)
	if i < 0 && len(m.masks) <= maxMasks {
		i = len(m.masks)
		m.masks, m.maskTexts = append(m.masks, x.mask), append(m.maskTexts, spelt)
	}
	if i >= 0 {
		k := lookupKey{isInputRound: x.matchKey.isInputRound, mask: i, params: x.matchKey.params}
		m.byParams[k] = append(m.byParams[k], x)
	}
	k := lookupKey{isInputRound: x.matchKey.isInputRound, target: x.matchKey.target}
	m.byTarget[k] = append(m.byTarget[k], x)
}

// lookup returns the entries with the same params, in their order. What was hidden in them counts as the same.
func (m *method) lookup(name string, params []byte, s matchKey) []*exchange {
	if list := m.byParams[lookupKey{isInputRound: s.isInputRound, params: s.params}]; len(list) > 0 {
		return list
	}
	for i, k := range m.masks[1:] {
		masked := matchKeyOf(name, params, k)
		if list := m.byParams[lookupKey{isInputRound: s.isInputRound, mask: i + 1, params: masked.params}]; len(list) > 0 {
			return list
		}
	}
	return nil
}

// rules returns those by which the requests of one client are judged.
func (r *Recording) rules() *era.Session {
	return era.NewSession(era.Config{Revisions: r.Revisions(), Lenient: r.lenient, Custom: r.mayHave})
}

// mayHave reports whether a method that the revision in force does not have may be there all the same: because it was recorded, or because no revision has it.
func (r *Recording) mayHave(name []byte) bool {
	for _, modern := range []bool{false, true} {
		if m := r.methods[methodKey{modern, string(name)}]; m != nil && slices.ContainsFunc(m.all, func(e *exchange) bool { return e.hasResponse && !e.failed }) {
			return modern || !isHandshake(name)
		}
	}
	for _, rev := range mcp.Revisions() {
		if era.Of(rev).HasMethod(name) {
			return false
		}
	}
	return true
}

// isHandshake reports whether it is how the legacy era begins, which no modern server knows.
func isHandshake(name []byte) bool { return string(name) == mcp.MethodInitialize }
