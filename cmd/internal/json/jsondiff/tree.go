package jsondiff

import (
	"encoding/binary"
	"hash/maphash"
	"iter"
	"strconv"
	"strings"

	"mcpwire/internal/json/decimal"
	"mcpwire/internal/json/jsonpointer"
	"mcpwire/internal/json/jsonwire"
)

// maxNesting limits the nesting of a text. Deeper ones are compared as a whole.
const maxNesting = 1 << 20

// A node is a value of a text.
//
// Nodes are in the order of the text. The first child of a node follows it, and next is the number
// of the node after all of its descendants.
type node struct {
	// hash is a hash of the value: equal values have equal hashes.
	hash uint64
	// start and end delimit the text.
	start, end int32
	// nameAt and nameEnd delimit the name of a member, between the quotes.
	nameAt, nameEnd int32
	next            int32
	count           int32
	// kind is the first byte, or 0 below MaxDepth.
	kind byte
	// duplicate reports an object with a duplicate name.
	duplicate bool
	// escaped reports that the name has escape sequences.
	ignored, escaped bool
}

// A tree is a parsed text.
type tree struct {
	data  []byte
	nodes []node
}

func (t *tree) text(i int32) []byte { return t.data[t.nodes[i].start:t.nodes[i].end] }

func (t *tree) name(i int32) string {
	n := &t.nodes[i]
	raw := t.data[n.nameAt:n.nameEnd]
	if n.escaped {
		return jsonwire.UnquoteString(raw)
	}
	return string(raw)
}

// children yields the numbers of a node's children.
func (t *tree) children(i int32) iter.Seq[int32] {
	return func(yield func(int32) bool) {
		c := i + 1
		for range t.nodes[i].count {
			if !yield(c) {
				return
			}
			c = t.nodes[c].next
		}
	}
}

func (t *tree) childList(i int32) []int32 {
	list := make([]int32, 0, t.nodes[i].count)
	for c := range t.children(i) {
		list = append(list, c)
	}
	return list
}

// A parser builds a tree.
type parser struct {
	tree
	s    jsonwire.Scanner
	opts *Options
	seed maphash.Seed
	buf  []byte
	ok   bool
}

// parse returns the tree of a text, or nil if it is invalid or exceeds a limit.
func parse(data []byte, opts *Options, seed maphash.Seed, ignore patterns) *tree {
	if len(data) > opts.MaxSize || len(data) > 1<<30 {
		return nil
	}
	p := &parser{tree: tree{data: data}, opts: opts, seed: seed, ok: true}
	p.s.Reset(data, maxNesting)
	p.value(ignore, opts.MaxDepth)
	if !p.ok || p.s.End() != nil {
		return nil
	}
	return &p.tree
}

// check records an error and reports whether there was none so far.
func (p *parser) check(err error) bool {
	if err != nil {
		p.ok = false
	}
	return p.ok
}

// value parses a value with at most depth levels, and returns its number.
func (p *parser) value(ignore patterns, depth int) int32 {
	kind := p.s.Peek()
	i := int32(len(p.nodes))
	if len(p.nodes) >= p.opts.MaxNodes {
		p.ok = false
		return i
	}
	p.nodes = append(p.nodes, node{kind: kind, start: int32(p.s.Pos())})
	var hash uint64
	switch {
	case (kind == '{' || kind == '[') && depth <= 0:
		p.nodes[i].kind = 0
		p.check(p.s.Skip())
		p.buf = jsonwire.AppendCompact(p.buf[:0], p.data[p.nodes[i].start:p.s.Pos()])
		hash = p.hash('o', p.buf)
	case kind == '{':
		hash = p.object(i, ignore, depth)
	case kind == '[':
		hash = p.array(i, ignore, depth)
	case kind == '"':
		raw, escaped, err := p.s.String()
		p.check(err)
		hash = p.string('s', raw, escaped)
	default:
		p.check(p.s.Skip())
		hash = p.scalar(p.data[p.nodes[i].start:p.s.Pos()])
	}
	n := &p.nodes[i]
	n.end, n.next, n.hash = int32(p.s.Pos()), int32(len(p.nodes)), hash
	if ignore.all {
		n.ignored, n.hash = true, 0
	}
	return i
}

// object parses an object. Its hash does not depend on the order of its members, unless a name is
// duplicate.
func (p *parser) object(i int32, ignore patterns, depth int) (hash uint64) {
	var inOrder maphash.Hash
	inOrder.SetSeed(p.seed)
	names := map[uint64]struct{}{}
	more, err := p.s.EnterObject()
	for p.check(err) && more {
		p.s.Peek()
		nameAt := int32(p.s.Pos()) + 1
		raw, escaped, err := p.s.Key()
		if !p.check(err) {
			break
		}
		name := p.string('n', raw, escaped)
		if _, twice := names[name]; twice {
			p.nodes[i].duplicate = true
		}
		names[name] = struct{}{}
		below := ignore
		if len(ignore.list) > 0 {
			below = ignore.member(raw, escaped)
		}
		c := p.value(below, depth-1)
		if !p.ok {
			break
		}
		n := &p.nodes[c]
		n.nameAt, n.nameEnd, n.escaped = nameAt, nameAt+int32(len(raw)), escaped
		p.nodes[i].count++
		if !n.ignored {
			hash += p.combine(name, n.hash)
		}
		writeHashes(&inOrder, name, n.hash)
		more, err = p.s.NextMember()
		p.check(err)
	}
	if p.nodes[i].duplicate {
		return p.combine(inOrder.Sum64(), 'd')
	}
	return p.combine(hash, '{')
}

func (p *parser) array(i int32, ignore patterns, depth int) uint64 {
	var sum maphash.Hash
	sum.SetSeed(p.seed)
	more, err := p.s.EnterArray()
	for p.check(err) && more {
		below := ignore
		if len(ignore.list) > 0 {
			below = ignore.element(int(p.nodes[i].count))
		}
		c := p.value(below, depth-1)
		if !p.ok {
			break
		}
		p.nodes[i].count++
		if !p.nodes[c].ignored {
			writeHashes(&sum, p.nodes[c].hash)
		}
		more, err = p.s.NextElement()
		p.check(err)
	}
	return p.combine(sum.Sum64(), '[')
}

func (p *parser) scalar(text []byte) uint64 {
	if len(text) > 0 && (text[0] == '-' || text[0] >= '0' && text[0] <= '9') {
		p.buf = append(p.buf[:0], text...) // for a power of ten beyond what a Decimal has
		if d := decimal.Parse(text); max(d.Exp, -d.Exp) < decimal.MaxExp/2 {
			p.buf = d.AppendCanonical(p.buf[:0])
		}
		return p.hash('0', p.buf)
	}
	return p.hash('l', text)
}

func (p *parser) string(tag byte, raw []byte, escaped bool) uint64 {
	if escaped {
		p.buf = jsonwire.AppendUnquote(p.buf[:0], raw)
		raw = p.buf
	}
	return p.hash(tag, raw)
}

func (p *parser) hash(tag byte, text []byte) uint64 {
	return p.combine(maphash.Bytes(p.seed, text), uint64(tag))
}

// combine returns the hash of two hashes.
func (p *parser) combine(a, b uint64) uint64 {
	var buf [16]byte
	binary.LittleEndian.PutUint64(buf[:], a)
	binary.LittleEndian.PutUint64(buf[8:], b)
	return maphash.Bytes(p.seed, buf[:])
}

func writeHashes(h *maphash.Hash, sums ...uint64) {
	var buf [8]byte
	for _, s := range sums {
		binary.LittleEndian.PutUint64(buf[:], s)
		h.Write(buf[:])
	}
}

// patterns select the values to ignore below a location. They are immutable.
type patterns struct {
	// list holds the remaining segments of each pattern.
	list [][]string
	// all reports that the location itself is ignored.
	all bool
}

func parsePatterns(pointers []string) (p patterns) {
	for _, s := range pointers {
		if s == "" {
			p.all = true
			continue
		}
		p.list = append(p.list, jsonpointer.Split(s))
	}
	return p
}

// member returns the patterns for a member. raw is its name between the quotes.
func (ps patterns) member(raw []byte, escaped bool) patterns {
	if escaped {
		return ps.descend(jsonwire.UnquoteString(raw))
	}
	return ps.descend(string(raw))
}

func (ps patterns) element(index int) patterns { return ps.descend(strconv.Itoa(index)) }

func (ps patterns) descend(name string) (below patterns) {
	for _, segments := range ps.list {
		switch {
		case !matchGlob(segments[0], name):
		case len(segments) == 1:
			below.all = true
		default:
			below.list = append(below.list, segments[1:])
		}
	}
	return below
}

// matchGlob reports whether a name matches a pattern in which each "*" matches any text.
func matchGlob(pattern, name string) bool {
	first, rest, more := strings.Cut(pattern, "*")
	if !more {
		return pattern == name
	}
	if !strings.HasPrefix(name, first) {
		return false
	}
	name = name[len(first):]
	for {
		part, after, more := strings.Cut(rest, "*")
		if !more {
			return strings.HasSuffix(name, part)
		}
		i := strings.Index(name, part)
		if i < 0 {
			return false
		}
		name, rest = name[i+len(part):], after
	}
}
