package jsonwire

import (
	"bytes"
	"hash/maphash"
	"unicode"
	"unicode/utf8"
)

// Duplicate returns the first member name in text, at any level, that an earlier member of the same
// object already has: the name between its quotes, aliasing text. ok is false if all names are
// unique. Names are compared with their escapes decoded. In objects at the first folded levels (1
// is the outermost value itself) names that differ only in case count as the same, because some
// readers, such as encoding/json, accept either.
//
// text must have passed a [Scanner]; for any other text the result is meaningless. The time is
// linear in the length of text. Objects with few members need no memory; a larger one needs up to
// 16 bytes for each member while it is read.
func Duplicate(text []byte, folded int) (name []byte, ok bool) {
	var (
		levelBuf [16]nameLevel
		nameBuf  [4 * maxLinearNames]nameRange
		levels   = levelBuf[:0] // open arrays and objects
		names    = nameBuf[:0]  // of open objects without a table
		spare    *nameTable     // of an object that has ended
	)
	for i := 0; i < len(text); i++ {
		top := len(levels) - 1
		switch text[i] {
		case '{', '[':
			levels = append(levels, nameLevel{first: len(names), object: text[i] == '{', wantsName: text[i] == '{'})
		case '}', ']':
			if top >= 0 {
				if t := levels[top].table; t != nil && len(t.starts) == minTableSize {
					spare = t
				}
				names = names[:levels[top].first]
				levels = levels[:top]
			}
		case ',':
			if top >= 0 {
				levels[top].wantsName = levels[top].object
			}
		case '"':
			if top < 0 || !levels[top].wantsName {
				i = quotedEnd(text, i+1) - 1
				continue
			}
			level := &levels[top]
			level.wantsName = false
			at := nameRange{start: i + 1}
			at.end, at.escaped = nameQuote(text, i+1)
			i = at.end
			fold := len(levels) <= folded
			if level.table == nil {
				for _, other := range names[level.first:] {
					if sameName(text, at, other, fold) {
						return text[at.start:at.end], true
					}
				}
				if names = append(names, at); len(names)-level.first <= maxLinearNames {
					continue
				}
				level.table, spare = newNameTable(spare), nil
				for _, other := range names[level.first:] {
					level.table.add(text, other, fold)
				}
				names = names[:level.first]
			} else if level.table.add(text, at, fold) {
				return text[at.start:at.end], true
			}
		}
	}
	return nil, false
}

// maxLinearNames is the number of names of an object that are compared one by one. More are hashed.
const maxLinearNames = 16

// A nameLevel is an open array or object.
type nameLevel struct {
	// first is the index of the object's first name. With a table, it is the end of the list.
	first int
	// object is false for an array.
	object bool
	// wantsName reports that the next string is a name.
	wantsName bool
	// table holds many names. It is nil for few.
	table *nameTable
}

// A nameRange locates a name, without its quotes.
type nameRange struct {
	start, end int
	escaped    bool
}

func nameAt(text []byte, start uint32) nameRange {
	end, escaped := nameQuote(text, int(start))
	return nameRange{int(start), end, escaped}
}

// sameName reports whether two names are the same.
func sameName(text []byte, a, b nameRange, fold bool) bool {
	x, y := text[a.start:a.end], text[b.start:b.end]
	if a.escaped {
		x = AppendUnquote(nil, x)
	}
	if b.escaped {
		y = AppendUnquote(nil, y)
	}
	if fold {
		return bytes.EqualFold(x, y)
	}
	return string(x) == string(y)
}

// A nameTable is a hash table of the names of one object.
type nameTable struct {
	seed maphash.Seed
	// starts holds the offsets of the names in the text. Its length is a power of two, and 0 is a
	// free slot.
	starts  []uint32
	count   int
	scratch []byte
}

// minTableSize is the initial size of a table.
const minTableSize = 8 * maxLinearNames

// newNameTable returns an empty table. It reuses old if that is not nil.
func newNameTable(old *nameTable) *nameTable {
	if old == nil {
		return &nameTable{seed: maphash.MakeSeed(), starts: make([]uint32, minTableSize)}
	}
	clear(old.starts)
	old.count = 0
	return old
}

// add adds a name and reports whether it was present.
func (t *nameTable) add(text []byte, name nameRange, fold bool) bool {
	if t.count++; 2*t.count > len(t.starts) {
		old := t.starts
		t.starts = make([]uint32, 2*len(old))
		for _, start := range old {
			if start != 0 {
				t.put(text, nameAt(text, start), fold)
			}
		}
	}
	return t.put(text, name, fold)
}

func (t *nameTable) put(text []byte, name nameRange, fold bool) bool {
	mask := uint64(len(t.starts) - 1)
	for at := t.hash(text, name, fold) & mask; ; at = (at + 1) & mask {
		start := t.starts[at]
		if start == 0 {
			t.starts[at] = uint32(name.start)
			return false
		}
		if sameName(text, name, nameAt(text, start), fold) {
			return true
		}
	}
}

func (t *nameTable) hash(text []byte, name nameRange, fold bool) uint64 {
	plain := text[name.start:name.end]
	if name.escaped {
		t.scratch = AppendUnquote(t.scratch[:0], plain)
		plain = t.scratch
	}
	if fold {
		n := len(t.scratch)
		if !name.escaped {
			n = 0
		}
		t.scratch = appendFold(t.scratch[:n], plain)
		plain = t.scratch[n:]
	}
	return maphash.Bytes(t.seed, plain)
}

// appendFold appends name in a form that is the same for all names that differ only in case, as
// defined by [bytes.EqualFold].
func appendFold(dst, name []byte) []byte {
	for i := 0; i < len(name); {
		if c := name[i]; c < utf8.RuneSelf {
			if 'a' <= c && c <= 'z' {
				c -= 'a' - 'A'
			}
			dst = append(dst, c)
			i++
			continue
		}
		r, n := utf8.DecodeRune(name[i:])
		// Use the smallest of the runes that differ only in case.
		for {
			next := unicode.SimpleFold(r)
			if next <= r {
				r = next
				break
			}
			r = next
		}
		dst = utf8.AppendRune(dst, r)
		i += n
	}
	return dst
}
