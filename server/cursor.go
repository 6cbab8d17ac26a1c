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

// matches reports whether the position names the item with that key.
func (p *position) matches(key string) bool {
	if len(key) <= maxCursorName {
		return p.name[0] == 'n' && p.name[1:] == key
	}
	return p.name[0] == 'd' && p.name == cursorName(key)
}

// sealCursor makes the cursor of the page behind an item.
func (lr *listRequest) sealCursor(last *entry) ([]byte, error) {
	plaintext := append(make([]byte, 0, 64), lr.srv.instance[:]...)
	plaintext = append(binary.AppendUvarint(plaintext, last.seq), cursorName(last.key)...)
	text, _, err := lr.srv.opts.StateKeys.ring.Seal(nil, cursorPurpose, plaintext, lr.cursorBinding())
	return text, err
}

// openCursor is the reverse of sealCursor.
func (lr *listRequest) openCursor(cursor string) (p position, ok bool) {
	plaintext, _, err := lr.srv.opts.StateKeys.ring.Open(cursor, maxCursor, cursorPurpose, lr.cursorBinding())
	if err != nil || len(plaintext) < len(p.server) {
		return p, false
	}
	rest := plaintext[copy(p.server[:], plaintext):]
	seq, n := binary.Uvarint(rest)
	if n <= 0 || n == len(rest) {
		return p, false
	}
	p.seq, p.name = seq, string(rest[n:])
	return p, true
}

// cursorBinding returns what a cursor is good for: the lists of one kind of servers of one name.
func (lr *listRequest) cursorBinding() []byte { return append([]byte{byte(lr.kind)}, lr.srv.name...) }

// itemsAfter returns the items that come after the position.
func itemsAfter[T item](l *listRequest, items []T, p position) []T {
	if p.server != l.srv.instance {
		if i := slices.IndexFunc(items, func(it T) bool { return p.matches(it.base().key) }); i >= 0 {
			return items[i+1:]
		}
	}
	i, found := slices.BinarySearchFunc(items, p.seq, func(it T, seq uint64) int { return cmp.Compare(it.base().seq, seq) })
	if found {
		i++
	}
	return items[i:]
}
