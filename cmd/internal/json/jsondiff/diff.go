package jsondiff

import (
	"bytes"
	"cmp"
	"hash/maphash"
	"strconv"
	"strings"
	"unicode/utf8"

	"mcpwire/internal/json/jsonpointer"
)

// An Op is the operation of a [Change].
type Op string

// The operations.
const (
	Add     Op = "add"
	Remove  Op = "remove"
	Replace Op = "replace"
	// More means that there are more changes than Options.MaxChanges. It is always the last.
	More Op = "more"
)

// A Change is one difference.
type Change struct {
	Op Op `json:"op"`
	// Pointer is the location as a JSON pointer, "" for the whole text. It is valid after the
	// previous changes: indexes are those of the second text, and a removed element has the index
	// that it then has.
	Pointer string `json:"pointer"`
	// OldPointer is the location in the first text, if it exists and differs from Pointer.
	OldPointer string `json:"first,omitempty"`
	// Old and New are the values as written in the texts, as JSON text, or "". A text that is not
	// JSON is used unchanged.
	Old string `json:"old,omitempty"`
	New string `json:"new,omitempty"`
	// Cut reports that Old or New is truncated; see Options.MaxValue.
	Cut bool `json:"cut,omitempty"`
}

// Options configure [Diff]. A nil *Options means defaults.
type Options struct {
	// Ignore lists JSON pointers of values to ignore. A "*" matches any text within a name or an
	// index: /result/_meta, /result/content/*/text, /params/trace*. Ignore applies only to texts
	// that are compared part by part.
	Ignore []string
	// MaxChanges limits the returned changes. Zero means 1000.
	MaxChanges int
	// MaxDepth limits the levels that are compared part by part. Deeper values are compared as a
	// whole, by their text without white space. Zero means 100, and the maximum is 1000.
	MaxDepth int
	// MaxSize limits the size in bytes of a text that is compared part by part. Zero means 16 MiB.
	MaxSize int
	// MaxNodes limits the values of a text that is compared part by part. Zero means 500,000.
	MaxNodes int
	// MaxValue limits the length of Old and New in bytes. Zero means 4 KiB, and a negative value no
	// limit.
	MaxValue int
}

// withDefaults returns the options with the defaults filled in. o may be nil.
func (o *Options) withDefaults() Options {
	var c Options
	if o != nil {
		c = *o
	}
	c.MaxChanges = max(cmp.Or(c.MaxChanges, 1000), 1)
	c.MaxDepth = min(cmp.Or(c.MaxDepth, 100), 1000)
	c.MaxSize = cmp.Or(c.MaxSize, 16<<20)
	c.MaxNodes = cmp.Or(c.MaxNodes, 500_000)
	c.MaxValue = cmp.Or(c.MaxValue, 4<<10)
	return c
}

// Diff returns the changes that turn a into b, and none if they are equal. opts may be nil. It
// keeps neither text.
func Diff(a, b []byte, opts *Options) []Change {
	d := differ{opts: opts.withDefaults(), cells: maxCells}
	if bytes.Equal(a, b) {
		return nil
	}
	// The random seed prevents texts with colliding hashes.
	seed := maphash.MakeSeed()
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

// maxPointer limits the pointer length in bytes of a value that is compared part by part.
const maxPointer = 4096

// A differ collects changes.
type differ struct {
	opts    Options
	a, b    *tree
	changes []Change
	// cells limits the total size of later alignments.
	cells int
}

// A location is where a value is: after the previous changes, and in the first text. Both are JSON
// pointers.
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
		segment = jsonpointer.Escape(segment)
	}
	return append(pointer, segment...)
}

// full reports whether the limit of changes is exceeded.
func (d *differ) full() bool { return len(d.changes) > d.opts.MaxChanges }

// add adds a change. old and value are the texts of its values, or nil.
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

// text returns a text, truncated to MaxValue.
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
	// It is not in the first text.
	p.old = p.current
	d.change(Add, nil, d.b.text(j), p)
}

func (d *differ) change(op Op, old, value []byte, p location) {
	c := Change{Op: op, Pointer: string(p.current)}
	if !bytes.Equal(p.old, p.current) {
		c.OldPointer = string(p.old)
	}
	d.add(c, old, value)
}

// value compares two values, given by the numbers of their nodes.
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

// Limits on the tables that align elements: of one array, and of all arrays together. Beyond them,
// elements are compared by index.
const (
	maxTable = 1 << 20
	maxCells = 1 << 23
)

func (d *differ) array(i, j int32, p location) {
	as, bs := d.a.childList(i), d.b.childList(j)
	at := 0 // index after the previous changes
	first := 0
	for len(as) > 0 && len(bs) > 0 && d.equal(as[0], bs[0]) {
		as, bs, at, first = as[1:], bs[1:], at+1, first+1
	}
	for len(as) > 0 && len(bs) > 0 && d.equal(as[len(as)-1], bs[len(bs)-1]) {
		as, bs = as[:len(as)-1], bs[:len(bs)-1]
	}
	table := d.newAlignment(as, bs)
	for len(as)+len(bs) > 0 && !d.full() {
		// Elements before the next equal ones are paired as long as both arrays have some.
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

// An alignment holds the number of elements that two arrays have in common from each position on,
// in the same order. nil stands for a table that would be too large.
type alignment struct {
	common     []int32
	rows, cols int
}

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

// nextCommon returns the number of elements of both lists before the next common ones.
func nextCommon(t *alignment, as, bs []int32, equal func(i, j int32) bool) (x, y int) {
	if t == nil {
		return len(as), len(bs)
	}
	at := (t.rows-1-len(as))*t.cols + t.cols - 1 - len(bs)
	for x < len(as) && y < len(bs) && !equal(as[x], bs[y]) {
		// Nothing common is left.
		if t.common[at] == 0 {
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

// keptPrefix is the number of bytes that [TrimCommonPrefix] keeps before a difference.
const keptPrefix = 40

// TrimCommonPrefix removes most of the common prefix of two texts, so that their first difference
// is visible when only the beginning of a text is shown. It puts "…" in place of the removed text.
// It returns texts that differ early unchanged.
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
