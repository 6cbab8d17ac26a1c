package live

import (
	"bytes"
	"path/filepath"
)

// A backlog keeps the last lines of a capture that cannot be read in a file while the tap runs, so that who comes a moment after the tap has begun sees how it began.
type backlog struct {
	max    int // bytes; 0 keeps none
	blocks []lineBlock
	bytes  int
}

// A passage is some whole lines, once it is done.
type lineBlock struct {
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
	if k := len(b.blocks); k == 0 || b.blocks[k-1].done {
		b.blocks = append(b.blocks, lineBlock{first: next})
	}
	last := &b.blocks[len(b.blocks)-1]
	switch {
	case last.first == 0:
	case len(last.text)+len(p) > b.max: // lines cannot follow one that is missing
		b.blocks, b.bytes = []lineBlock{{}}, 0
	default:
		last.text = append(last.text, p...)
	}
}

// endLine says that the last line has ended, at the event before next.
func (b *backlog) endLine(next uint64) {
	k := len(b.blocks)
	if k == 0 || b.blocks[k-1].done {
		return
	}
	last := &b.blocks[k-1]
	if last.first == 0 { // some of it is missing
		b.blocks = b.blocks[:k-1]
		return
	}
	if last.text = bytes.Clone(last.text); !bytes.HasSuffix(last.text, lineEnd) {
		last.text = append(last.text, '\n')
	}
	last.done = true
	b.bytes += len(last.text)
	for b.bytes > b.max {
		b.bytes -= len(b.blocks[0].text)
		b.blocks[0].text = nil
		b.blocks = b.blocks[1:]
	}
}

// firstEvent returns the number of the first event that is kept, or next if none is.
func (b *backlog) firstEvent(next uint64) uint64 {
	if len(b.blocks) > 0 && b.blocks[0].done {
		return b.blocks[0].first
	}
	return next
}

// all returns the lines that are kept.
func (b *backlog) all() (text []byte) {
	for _, p := range b.blocks {
		if p.done {
			text = append(text, p.text...)
		}
	}
	return text
}
