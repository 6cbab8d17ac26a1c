package capture

import (
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"hash"
	"math/bits"
	"net/url"
	"slices"
	"strconv"
)

// A Redaction says what a capture hides besides the usual. A nil *Redaction is the usual alone, see the package comment.
type Redaction struct {
	// Key makes the placeholders: equal secrets have equal ones in all captures with the same key. It must be kept secret, and have at least 16 bytes; a shorter one is ignored. nil is a random key
	// for each capture, which is forgotten with it.
	Key []byte
	// Names are more names whose values are hidden: of members, headers, parameters and variables. Case, and what is no letter or digit, do not count.
	Names []string
	// Headers are more names of HTTP headers whose values are shown.
	Headers []string
	// Secrets are texts that must not be in the capture wherever they stand. Those of fewer than 4 bytes are ignored.
	Secrets []string
}

// A Redactor hides secrets in the events of a capture. It is for one goroutine at a time.
type Redactor struct {
	mac     hash.Hash
	names   []string // normalised
	headers []string // lower case
	known   knownSecrets
	openPEM map[textStream]int // streams of text that are inside of a private key, and how many lines of it may still come
	label   string
	plain   []byte // scratch for what base64 stands for

	// pendingNames are the streams of text whose last line ended in the name of a secret.
	pendingNames map[textStream]pendingName

	nameClasses map[string]nameClass // of names
}

// NewRedactor returns a Redactor. r may be nil.
func NewRedactor(r *Redaction) *Redactor {
	d := &Redactor{openPEM: map[textStream]int{}, pendingNames: map[textStream]pendingName{}, label: "default", nameClasses: map[string]nameClass{}}
	var key [32]byte
	rand.Read(key[:]) // never fails
	secret := key[:]
	if r != nil {
		d.label = "custom"
		if len(r.Key) >= 16 {
			secret = slices.Clone(r.Key)
		}
		for _, n := range r.Names {
			d.names = append(d.names, string(appendNormal(nil, n)))
		}
		for _, n := range r.Headers {
			d.headers = append(d.headers, lower(n))
		}
		for _, s := range r.Secrets {
			d.known.add(s, 4, true)
		}
	}
	d.mac = hmac.New(sha256.New, secret)
	return d
}

// Learn makes the Redactor hide a text wherever it stands from now on. It keeps a limited number of them, and none of fewer than 4 bytes.
func (r *Redactor) Learn(secret string) { r.known.add(secret, 4, true) }

// appendPlaceholder appends what stands for a secret: its kind, a keyed hash, and the power of two that its length does not exceed. It has no character
// that JSON, a URL or an HTTP header would have to escape.
func (r *Redactor) appendPlaceholder(dst []byte, kind string, secret []byte) []byte {
	var sum [sha256.Size]byte
	r.mac.Reset()
	r.mac.Write(secret)
	dst = append(dst, "~redacted:"...)
	dst = append(dst, kind...)
	dst = append(dst, ':')
	dst = hex.AppendEncode(dst, r.mac.Sum(sum[:0])[:6])
	dst = append(dst, ':')
	class := 8
	if n := len(secret); n > 8 {
		class = 1 << bits.Len(uint(n-1))
	}
	dst = strconv.AppendInt(dst, int64(class), 10)
	return append(dst, '~')
}

// An edit replaces a part of a text. Its replacement is in the arena of the list.
type edit struct {
	start, end int // in the text
	from, to   int // in the arena
}

// edits are the changes to a text, in their order, not overlapping.
type edits struct {
	list  []edit
	arena []byte
}

func (e *edits) reset() {
	e.list, e.arena = e.list[:0], e.arena[:0]
	if cap(e.arena) > 1<<20 {
		e.arena = nil
	}
	if cap(e.list) > 1<<14 {
		e.list = nil
	}
}

// hide replaces the text from start to end, which means secret, by a placeholder.
func (r *Redactor) hide(e *edits, start, end int, kind string, secret []byte) {
	if isPlaceholder(secret) {
		return
	}
	from := len(e.arena)
	e.arena = r.appendPlaceholder(e.arena, kind, secret)
	e.list = append(e.list, edit{start, end, from, len(e.arena)})
}

// replace replaces the text from start to end by other text.
func (e *edits) replace(start, end int, text []byte) {
	from := len(e.arena)
	e.arena = append(e.arena, text...)
	e.list = append(e.list, edit{start, end, from, len(e.arena)})
}

// remove forgets the edits between two places.
func (e *edits) remove(start, end int) {
	e.list = slices.DeleteFunc(e.list, func(d edit) bool { return d.start >= start && d.end <= end })
}

// normalize brings the edits from the index on into order; where two overlap, the one that begins first takes the other in.
func (e *edits) normalize(from int) {
	list := e.list[from:]
	less := func(a, b edit) int {
		if a.start != b.start {
			return a.start - b.start
		}
		return b.end - a.end
	}
	if !slices.IsSortedFunc(list, less) {
		slices.SortStableFunc(list, less)
	}
	n := 0
	for _, d := range list {
		if n > 0 && d.start < list[n-1].end {
			list[n-1].end = max(list[n-1].end, d.end)
			continue
		}
		list[n] = d
		n++
	}
	e.list = e.list[:from+n]
}

// apply yields the pieces of the text with its edits made.
func (e *edits) apply(text []byte, put func([]byte)) {
	at := 0
	for _, d := range e.list {
		put(text[at:d.start])
		put(e.arena[d.from:d.to])
		at = d.end
	}
	put(text[at:])
}

func appendEdited(dst, text []byte, list []edit, arena []byte) []byte {
	at := 0
	for _, d := range list {
		dst = append(dst, text[at:d.start]...)
		dst = append(dst, arena[d.from:d.to]...)
		at = d.end
	}
	return append(dst, text[at:]...)
}

// knownSecrets holds texts that are secret wherever they stand.
type knownSecrets struct {
	fixed  []string // asked for by name
	recent []string // seen in headers; the oldest makes room
	next   int
}

const (
	maxFixed   = 256
	maxLearned = 64
	maxSecret  = 16 << 10 // bytes
)

func (ks *knownSecrets) add(secret string, atLeast int, fixed bool) {
	ks.addText(secret, atLeast, fixed)
	if q := url.QueryEscape(secret); q != secret {
		ks.addText(q, atLeast, fixed)
	}
}

func (ks *knownSecrets) addText(s string, atLeast int, fixed bool) {
	if len(s) < atLeast || len(s) > maxSecret || slices.Contains(ks.fixed, s) || slices.Contains(ks.recent, s) {
		return
	}
	if isPlaceholder(s) {
		return
	}
	switch {
	case fixed && len(ks.fixed) < maxFixed:
		ks.fixed = append(ks.fixed, s)
	case len(ks.recent) < maxLearned:
		ks.recent = append(ks.recent, s)
	default:
		ks.recent[ks.next%maxLearned] = s
		ks.next++
	}
}

func (ks *knownSecrets) all(yield func(string) bool) {
	for _, list := range [2][]string{ks.fixed, ks.recent} {
		for _, s := range list {
			if !yield(s) {
				return
			}
		}
	}
}
