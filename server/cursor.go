package server

import (
	"cmp"
	"crypto/sha256"
	"encoding/binary"
	"slices"
)

// A position is where a page of a list ends. The client keeps it as a cursor, sealed with
// [Options.StateKeys]: it can only come back with one that it was given, and every server that
// shares the keys takes it.
//
// The number is exact in the server that made the cursor: what is registered again has another.
// Other servers may have registered the same items in another order. They go on behind the item of
// that name in their own; if they don't have it, behind the number, which is its place wherever the
// same program registers its items in the same order.
type position struct {
	server [8]byte // which made it
	seq    uint64  // of the last item of the page
	name   string  // of that item, see cursorName
}

const (
	cursorPurpose = "list cursor 1" // a number for each format of position
	maxCursorName = 256
	maxCursor     = 1 << 10 // characters
)

// cursorName returns what stands for an item's name in a cursor: its digest if it is long. The
// first byte tells the two apart.
func cursorName(key string) string {
	if len(key) <= maxCursorName {
		return "n" + key
	}
	sum := sha256.Sum256([]byte(key))
	return "d" + string(sum[:])
}

// is reports whether the position names the item with that key.
func (p *position) is(key string) bool {
	if len(key) <= maxCursorName {
		return p.name[0] == 'n' && p.name[1:] == key
	}
	return p.name[0] == 'd' && p.name == cursorName(key)
}

// sealCursor makes the cursor of the page behind an item.
func (l *listing) sealCursor(last *entry) ([]byte, error) {
	plain := append(make([]byte, 0, 64), l.srv.instance[:]...)
	plain = append(binary.AppendUvarint(plain, last.seq), cursorName(last.key)...)
	text, _, err := l.srv.opts.StateKeys.ring.Seal(nil, cursorPurpose, plain, l.cursorBound())
	return text, err
}

// openCursor is the reverse of sealCursor.
func (l *listing) openCursor(cursor string) (p position, ok bool) {
	plain, _, err := l.srv.opts.StateKeys.ring.Open(cursor, maxCursor, cursorPurpose, l.cursorBound())
	if err != nil || len(plain) < len(p.server) {
		return p, false
	}
	rest := plain[copy(p.server[:], plain):]
	seq, n := binary.Uvarint(rest)
	if n <= 0 || n == len(rest) {
		return p, false
	}
	p.seq, p.name = seq, string(rest[n:])
	return p, true
}

// cursorBound returns what a cursor is good for: the lists of one kind of servers of one name.
func (l *listing) cursorBound() []byte { return append([]byte{byte(l.kind)}, l.srv.name...) }

// behind returns the items that come after the position.
func behind[T item](l *listing, items []T, p position) []T {
	if p.server != l.srv.instance {
		if i := slices.IndexFunc(items, func(it T) bool { return p.is(it.base().key) }); i >= 0 {
			return items[i+1:]
		}
	}
	i, found := slices.BinarySearchFunc(items, p.seq, func(it T, seq uint64) int { return cmp.Compare(it.base().seq, seq) })
	if found {
		i++
	}
	return items[i:]
}
