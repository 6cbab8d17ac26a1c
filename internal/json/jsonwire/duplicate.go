package jsonwire

import (
	"bytes"
	"hash/maphash"
	"unicode"
	"unicode/utf8"
)

// Duplicate returns the first member name in text, at any level, that an earlier
// member of the same object has already: the name between its quotes, aliasing
// text. ok is false if there is none. Names are compared with their escapes
// decoded. In objects at the first folded levels (1 is the outermost value
// itself) names that differ in case only count as the same, since some readers,
// such as encoding/json, take either.
//
// text must have passed a [Scanner]; for any other text the result is
// meaningless. The time is linear in the length of text. Objects with few
// members need no memory; a larger one needs up to 16 bytes for each member
// while it is read.
func Duplicate(text []byte, folded int) (name []byte, ok bool) {
	var (
		levelBuf [16]nameLevel
		nameBuf  [4 * maxLinearNames]nameRange
		levels   = levelBuf[:0] // the arrays and objects that are open
		names    = nameBuf[:0]  // of those open objects that have no table
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

// maxLinearNames is how many names of an object are compared one by one. More are
// hashed.
const maxLinearNames = 16

// A nameLevel is an open array or object.
type nameLevel struct {
	first     int        // of the names of the object, or behind it if they are in the table
	object    bool       // otherwise an array
	wantsName bool       // the next string is a name
	table     *nameTable // of many names; nil if they are few
}

// A nameRange is where a name is, without its quotes.
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
	seed    maphash.Seed
	starts  []uint32 // of the names in the text; its length is a power of two, and 0 is a free place
	count   int
	scratch []byte
}

// minTableSize is how many places a table has at first.
const minTableSize = 8 * maxLinearNames

// newNameTable returns an empty table, which may be one that is not needed any
// more.
func newNameTable(old *nameTable) *nameTable {
	if old == nil {
		return &nameTable{seed: maphash.MakeSeed(), starts: make([]uint32, minTableSize)}
	}
	clear(old.starts)
	old.count = 0
	return old
}

// add adds a name, and reports whether it was there.
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

// appendFold appends name in a form that is the same for all names that differ
// in case only, as [bytes.EqualFold] has it.
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
		for { // to the least of those that differ in case only
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
