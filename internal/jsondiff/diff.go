package jsondiff

import (
	"bytes"
	"hash/maphash"
	"strconv"
	"strings"
	"unicode/utf8"
)

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
