package live

import (
	"bytes"
	"path/filepath"
)

// A backlog keeps the last lines of a capture that cannot be read in a file while the tap runs, so that who comes a moment after the tap has begun sees how it began.
type backlog struct {
	max   int // bytes; 0 keeps none
	parts []passage
	bytes int
}

// A passage is some whole lines, once it is done.
type passage struct {
	first uint64 // number of the event that the first of them is about; 0 if some are missing
	text  []byte
	done  bool
}

// compressed reports whether the capture in a file cannot be read before it is complete.
func compressed(file string) bool {
	ext := filepath.Ext(file)
	return ext == ".gz" || ext == ".zst"
}

// add keeps a piece. next is the number of the event that it begins with, if the passage before is done.
func (b *backlog) add(p []byte, next uint64) {
	if b.max == 0 {
		return
	}
	if k := len(b.parts); k == 0 || b.parts[k-1].done {
		b.parts = append(b.parts, passage{first: next})
	}
	last := &b.parts[len(b.parts)-1]
	switch {
	case last.first == 0:
	case len(last.text)+len(p) > b.max: // lines cannot follow one that is missing
		b.parts, b.bytes = []passage{{}}, 0
	default:
		last.text = append(last.text, p...)
	}
}

// end says that the last line has ended, at the event before next.
func (b *backlog) end(next uint64) {
	k := len(b.parts)
	if k == 0 || b.parts[k-1].done {
		return
	}
	last := &b.parts[k-1]
	if last.first == 0 { // some of it is missing
		b.parts = b.parts[:k-1]
		return
	}
	if last.text = bytes.Clone(last.text); !bytes.HasSuffix(last.text, lineEnd) {
		last.text = append(last.text, '\n')
	}
	last.done = true
	b.bytes += len(last.text)
	for b.bytes > b.max {
		b.bytes -= len(b.parts[0].text)
		b.parts[0].text = nil
		b.parts = b.parts[1:]
	}
}

// from returns the number of the first event that is kept, or next if none is.
func (b *backlog) from(next uint64) uint64 {
	if len(b.parts) > 0 && b.parts[0].done {
		return b.parts[0].first
	}
	return next
}

// all returns the lines that are kept.
func (b *backlog) all() (text []byte) {
	for _, p := range b.parts {
		if p.done {
			text = append(text, p.text...)
		}
	}
	return text
}
