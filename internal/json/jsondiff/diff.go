package jsondiff

import (
	"bytes"
	"hash/maphash"
	"strconv"
	"strings"
	"unicode/utf8"
)

// An Op says what a [Change] does.
type Op string

// The operations.
const (
	Add     Op = "add"
	Remove  Op = "remove"
	Replace Op = "replace"
	More    Op = "more" // there are more changes than Options.MaxChanges; always the last
)

// A Change is a difference.
type Change struct {
	Op Op `json:"op"`
	// Pointer is the place, "" for the whole text. It holds once the changes before this one are made: indexes of elements are those of the second text, and that of an element
	// that is removed is the one at which it stands by then.
	Pointer string `json:"pointer"`
	// OldPointer is the place in the first text, if it has one there and that is another than Pointer.
	OldPointer string `json:"first,omitempty"`
	// Old and New are the values as JSON text, as they are written in the texts; "" where there is none. What is no JSON stands for itself.
	Old string `json:"old,omitempty"`
	New string `json:"new,omitempty"`
	// Cut tells that Old or New is only the beginning, see Options.MaxValue.
	Cut bool `json:"cut,omitempty"`
}

// Options are the options of [Diff]. nil means defaults, and so does 0 for each number.
type Options struct {
	// Ignore are JSON pointers of what is not compared, with all that it holds. A "*" in them stands for any text within a name or an index: /result/_meta, /result/content/*/text,
	// /params/trace*. They are heeded in texts that are compared part by part.
	Ignore []string
	// MaxChanges is how many changes are returned at most; 0 is 1000.
	MaxChanges int
	// MaxDepth is how deep parts are compared: what is below is one part, and compared by its text without white space. 0 is 100, and more than 1000 is 1000.
	MaxDepth int
	// MaxSize is how long a text may be, in bytes, to be compared part by part; 0 is 16 MiB.
	MaxSize int
	// MaxNodes is how many values a text may have to be compared part by part; 0 is 500,000.
	MaxNodes int
	// MaxValue is how long Old and New may be, in bytes; 0 is 4 KiB, below 0 is without limit.
	MaxValue int
}

// withDefaults returns the options with what is not set filled in. o may be nil.
func (o *Options) withDefaults() Options {
	var c Options
	if o != nil {
		c = *o
	}
	for _, f := range []struct {
		field *int
		value int
	}{{&c.MaxChanges, 1000}, {&c.MaxDepth, 100}, {&c.MaxSize, 16 << 20}, {&c.MaxNodes, 500_000}, {&c.MaxValue, 4 << 10}} {
		if *f.field == 0 {
			*f.field = f.value
		}
	}
	c.MaxDepth, c.MaxChanges = min(c.MaxDepth, 1000), max(c.MaxChanges, 1)
	return c
}

// Diff returns the changes that make b of a; none if they are equal. opts may be nil. Neither text is kept.
func Diff(a, b []byte, opts *Options) []Change {
	d := differ{opts: opts.withDefaults(), cells: maxCells}
	if bytes.Equal(a, b) {
		return nil
	}
	seed := maphash.MakeSeed() // so that nobody can make texts whose hashes are equal
	ignore := parsePatterns(d.opts.Ignore)
	if ignore.all {
		return nil
	}
	d.a, d.b = parse(a, &d.opts, seed, ignore), parse(b, &d.opts, seed, ignore)
	if d.a == nil || d.b == nil {
		d.add(Change{Op: Replace}, a, b)
		return d.changes
	}
	d.value(0, 0, location{})
	return d.changes
}

// maxPointer is how long the pointer of a value may be, in bytes, that is compared part by part.
const maxPointer = 4096

// A differ collects changes.
type differ struct {
	opts    Options
	a, b    *tree
	changes []Change
	cells   int // that tables of arrays may still have
}

// A place is where a value is: once the changes before are made, and in the first text. Both are JSON pointers.
type location struct{ current, old []byte }

func (lo location) member(name string) location {
	return location{appendSegment(lo.current, name), appendSegment(lo.old, name)}
}

func (lo location) element(now, first int) location {
	return location{appendSegment(lo.current, strconv.Itoa(now)), appendSegment(lo.old, strconv.Itoa(first))}
}

// appendSegment appends to a copy.
func appendSegment(pointer []byte, segment string) []byte {
	pointer = append(pointer[:len(pointer):len(pointer)], '/')
	if strings.ContainsAny(segment, "~/") {
		segment = strings.ReplaceAll(strings.ReplaceAll(segment, "~", "~0"), "/", "~1")
	}
	return append(pointer, segment...)
}

// full reports whether no more changes are wanted.
func (d *differ) full() bool { return len(d.changes) > d.opts.MaxChanges }

// add adds a change. old and value are its texts, nil if it has none.
func (d *differ) add(c Change, old, value []byte) {
	if d.full() {
		return
	}
	if len(d.changes) == d.opts.MaxChanges {
		d.changes = append(d.changes, Change{Op: More})
		return
	}
	c.Old, c.New = d.text(old, &c.Cut), d.text(value, &c.Cut)
	d.changes = append(d.changes, c)
}

// text returns the beginning of a text.
func (d *differ) text(s []byte, cut *bool) string {
	limit := d.opts.MaxValue
	if limit < 0 || len(s) <= limit {
		return string(s)
	}
	*cut = true
	n := limit
	for n > 0 && n > limit-utf8.UTFMax && !utf8.RuneStart(s[n]) {
		n--
	}
	return string(s[:n])
}

func (d *differ) removed(i int32, p location) { d.change(Remove, d.a.text(i), nil, p) }

func (d *differ) added(j int32, p location) {
	p.old = p.current // it is not in the first text
	d.change(Add, nil, d.b.text(j), p)
}

func (d *differ) change(op Op, old, value []byte, p location) {
	c := Change{Op: op, Pointer: string(p.current)}
	if !bytes.Equal(p.old, p.current) {
		c.OldPointer = string(p.old)
	}
	d.add(c, old, value)
}

// value compares two values, which are numbers of nodes.
func (d *differ) value(i, j int32, p location) {
	x, y := &d.a.nodes[i], &d.b.nodes[j]
	switch {
	case d.full(), x.hash == y.hash, x.ignored, y.ignored:
	case len(p.current) > maxPointer:
		d.change(Replace, d.a.text(i), d.b.text(j), p)
	case x.kind == '{' && y.kind == '{' && !x.duplicate && !y.duplicate:
		d.object(i, j, p)
	case x.kind == '[' && y.kind == '[':
		d.array(i, j, p)
	default:
		d.change(Replace, d.a.text(i), d.b.text(j), p)
	}
}

func (d *differ) object(i, j int32, p location) {
	theirs := make(map[string]int32, d.b.nodes[j].count)
	for c := range d.b.children(j) {
		theirs[d.b.name(c)] = c
	}
	for c := range d.a.children(i) {
		if d.full() {
			return
		}
		name := d.a.name(c)
		other, ok := theirs[name]
		delete(theirs, name)
		switch {
		case d.a.nodes[c].ignored:
		case ok && d.equal(c, other):
		case ok:
			d.value(c, other, p.member(name))
		default:
			d.removed(c, p.member(name))
		}
	}
	for c := range d.b.children(j) {
		if d.full() {
			return
		}
		name := d.b.name(c)
		if _, left := theirs[name]; left && !d.b.nodes[c].ignored {
			d.added(c, p.member(name))
		}
	}
}

// The tables with which elements are aligned: one array's, and those of all arrays together. Above that, elements are compared by their indexes.
const (
	maxTable = 1 << 20
	maxCells = 1 << 23
)

// array compares two arrays.
func (d *differ) array(i, j int32, p location) {
	as, bs := d.a.childList(i), d.b.childList(j)
	at := 0 // index once the changes before are made
	first := 0
	for len(as) > 0 && len(bs) > 0 && d.equal(as[0], bs[0]) {
		as, bs, at, first = as[1:], bs[1:], at+1, first+1
	}
	for len(as) > 0 && len(bs) > 0 && d.equal(as[len(as)-1], bs[len(bs)-1]) {
		as, bs = as[:len(as)-1], bs[:len(bs)-1]
	}
	table := d.newAlignment(as, bs)
	for len(as)+len(bs) > 0 && !d.full() {
		// Up to the next elements that are equal, the others are pairs as long as both have some.
		x, y := nextCommon(table, as, bs, d.equal)
		pairs := min(x, y)
		for k := range pairs {
			d.value(as[k], bs[k], p.element(at, first+k))
			at++
		}
		for k := pairs; k < x; k++ {
			if d.a.nodes[as[k]].ignored { // it stays
				at++
			} else {
				d.removed(as[k], p.element(at, first+k))
			}
		}
		for k := pairs; k < y; k++ {
			if !d.b.nodes[bs[k]].ignored {
				d.added(bs[k], p.element(at, 0))
				at++
			}
		}
		first += x
		as, bs = as[x:], bs[y:]
		for len(as) > 0 && len(bs) > 0 && d.equal(as[0], bs[0]) {
			as, bs, at, first = as[1:], bs[1:], at+1, first+1
		}
	}
}

func (d *differ) equal(i, j int32) bool { return d.a.nodes[i].hash == d.b.nodes[j].hash }

// An alignment says how many elements two arrays have in common from a place on, in the same order. nil stands for a table that would be too large.
type alignment struct {
	common     []int32
	rows, cols int
}

// newAlignment makes the alignment of two lists of elements.
func (d *differ) newAlignment(as, bs []int32) *alignment {
	rows, cols := len(as)+1, len(bs)+1
	if rows == 1 || cols == 1 || rows > maxTable/cols || rows*cols > d.cells {
		return nil
	}
	d.cells -= rows * cols
	t := &alignment{make([]int32, rows*cols), rows, cols}
	for x := len(as) - 1; x >= 0; x-- {
		row, below := t.common[x*cols:(x+1)*cols], t.common[(x+1)*cols:(x+2)*cols]
		for y := len(bs) - 1; y >= 0; y-- {
			if d.equal(as[x], bs[y]) {
				row[y] = below[y+1] + 1
			} else {
				row[y] = max(below[y], row[y+1])
			}
		}
	}
	return t
}

// nextCommon returns how many elements of both lists come before the next ones that stay.
func nextCommon(t *alignment, as, bs []int32, equal func(i, j int32) bool) (x, y int) {
	if t == nil {
		return len(as), len(bs)
	}
	at := (t.rows-1-len(as))*t.cols + t.cols - 1 - len(bs)
	for x < len(as) && y < len(bs) && !equal(as[x], bs[y]) {
		if t.common[at] == 0 { // nothing that stays is left
			return len(as), len(bs)
		}
		if t.common[at+t.cols] >= t.common[at+1] {
			x++
			at += t.cols
		} else {
			y++
			at++
		}
	}
	if x == len(as) || y == len(bs) {
		return len(as), len(bs)
	}
	return x, y
}

// keptPrefix is how much [TrimCommonPrefix] leaves in front of a difference, in bytes.
const keptPrefix = 40

// TrimCommonPrefix returns two texts without most of what both begin with, so that their first difference is
// seen where only the beginning of a text is shown. "…" stands for what is left out. Texts that
// differ early are returned as they are.
func TrimCommonPrefix(a, b string) (x, y string) {
	same := 0
	for same < len(a) && same < len(b) && a[same] == b[same] {
		same++
	}
	from := same - keptPrefix
	if from <= keptPrefix || len(a) == same && len(b) == same {
		return a, b
	}
	for from > 0 && !utf8.RuneStart(a[from]) {
		from--
	}
	return "…" + a[from:], "…" + b[from:]
}
