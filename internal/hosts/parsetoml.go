package hosts

import (
	"bytes"
	"errors"
	"fmt"

	"github.com/pelletier/go-toml/v2"
	"github.com/pelletier/go-toml/v2/unstable"
)

// parseTOML reads TOML (https://toml.io/en/v1.0.0) from data[skip:].
func parseTOML(data []byte, skip int) (*node, error) {
	text := data[skip:]
	if bytes.Count(text, []byte(","))+bytes.Count(text, []byte("="))+bytes.Count(text, []byte("[")) > MaxValues {
		return nil, &ParseError{Reason: fmt.Sprintf("more than %d values", MaxValues)}
	}
	// The decoder knows what may not be said twice; the parser below knows where things are.
	var all map[string]any
	if err := toml.Unmarshal(text, &all); err != nil {
		var d *toml.DecodeError
		if !errors.As(err, &d) {
			return nil, &ParseError{Reason: "not TOML"}
		}
		line, column := d.Position()
		return nil, &ParseError{Line: line, Column: column, Reason: "not TOML: " + bareMessage(d)}
	}
	t := tomlTree{data: text, skip: skip, root: &node{kind: kindObject, start: skip, end: len(data)}, index: map[*node]map[string]*node{}}
	t.table = t.root
	t.parser.Reset(text)
	for t.parser.NextExpression() {
		if err := t.expression(t.parser.Expression()); err != nil {
			return nil, err
		}
	}
	if t.parser.Error() != nil {
		return nil, &ParseError{Reason: "not TOML"} // the decoder would have said so
	}
	return t.root, nil
}

// bareMessage is the decoder's message without what it quotes of the file: at most the names of keys are left.
func bareMessage(d *toml.DecodeError) string {
	text := d.Error()
	if i := bytes.IndexByte([]byte(text), '"'); i > 0 {
		text = text[:i] + "…"
	}
	return text[min(len("toml: "), len(text)):]
}

// A tomlTree is a document that is being read.
type tomlTree struct {
	data   []byte
	skip   int // what precedes data in the file
	parser unstable.Parser
	root   *node
	table  *node // that lines belong to
	index  map[*node]map[string]*node
}

// child returns the table of a name, and makes it of the kind that is wanted if it is not there. key is where it is named.
func (t *tomlTree) child(table *node, key *unstable.Node, want kind) *node {
	names := t.index[table]
	if names == nil {
		names = map[string]*node{}
		t.index[table] = names
	}
	name := string(key.Data)
	if v := names[name]; v != nil {
		return v
	}
	from := int(key.Raw.Offset) + t.skip
	v := &node{kind: want, start: from, end: from}
	table.members = append(table.members, member{name: name, keyStart: from, lineKey: from, keyEnd: from + int(key.Raw.Length), value: v})
	names[name] = v
	return v
}

func (t *tomlTree) expression(n *unstable.Node) error {
	switch n.Kind {
	case unstable.Table, unstable.ArrayTable:
		var keys []*unstable.Node
		for it := n.Key(); it.Next(); {
			keys = append(keys, it.Node())
		}
		if len(keys) > MaxDepth {
			return errorAt(t.data, int(keys[0].Raw.Offset), fmt.Sprintf("nested more than %d deep", MaxDepth))
		}
		t.table = t.header(keys, n.Kind == unstable.ArrayTable)
	case unstable.KeyValue:
		return t.keyValue(n, t.table, true, 0)
	}
	return nil
}

// header returns the table that a header names, and makes those on the way.
func (t *tomlTree) header(keys []*unstable.Node, array bool) *node {
	table := t.root
	for i, key := range keys {
		last := array && i == len(keys)-1
		want := kindObject
		if last {
			want = kindArray
		}
		v := t.child(table, key, want)
		if v.kind == kindArray {
			if last || len(v.elems) == 0 {
				v.elems = append(v.elems, &node{kind: kindObject, start: v.start, end: v.end})
			}
			v = v.elems[len(v.elems)-1]
		}
		table = v
	}
	return table
}

// keyValue adds a line, or a part of an inline table, to table.
func (t *tomlTree) keyValue(n *unstable.Node, table *node, block bool, depth int) error {
	var first, last *unstable.Node
	for it := n.Key(); it.Next(); {
		if first == nil {
			first = it.Node()
		}
		if last != nil {
			table = t.child(table, last, kindObject)
		}
		last = it.Node()
		if depth++; depth > MaxDepth {
			return errorAt(t.data, int(last.Raw.Offset), fmt.Sprintf("nested more than %d deep", MaxDepth))
		}
	}
	keyEnd := int(last.Raw.Offset + last.Raw.Length)
	start := keyEnd + bytes.IndexByte(t.data[keyEnd:], '=') + 1
	for start < len(t.data) && (t.data[start] == ' ' || t.data[start] == '\t') {
		start++
	}
	v, err := t.value(n.Value(), start, int(n.Raw.Offset+n.Raw.Length), depth)
	if err != nil {
		return err
	}
	table.members = append(table.members, member{name: string(last.Data), keyStart: int(last.Raw.Offset) + t.skip, keyEnd: keyEnd + t.skip,
		lineKey: int(first.Raw.Offset) + t.skip, block: block, value: v})
	if names := t.index[table]; names != nil {
		names[string(last.Data)] = v
	}
	return nil
}

// value makes a node of a value between two offsets of data. The parser tells the places of simple values only, so a value with
// parts inside an array gets the place of the array: nothing is edited there.
func (t *tomlTree) value(n *unstable.Node, start, end, depth int) (*node, error) {
	if depth > MaxDepth {
		return nil, errorAt(t.data, start, fmt.Sprintf("nested more than %d deep", MaxDepth))
	}
	v := &node{start: start + t.skip, end: end + t.skip, text: string(n.Data)}
	switch n.Kind {
	case unstable.InlineTable:
		v.kind = kindObject
		for it := n.Children(); it.Next(); {
			if err := t.keyValue(it.Node(), v, false, depth+1); err != nil {
				return nil, err
			}
		}
	case unstable.Array:
		v.kind = kindArray
		for it := n.Children(); it.Next(); {
			c := it.Node()
			from, to := start, end
			if c.Raw.Length > 0 && c.Kind != unstable.InlineTable {
				from, to = int(c.Raw.Offset), int(c.Raw.Offset+c.Raw.Length)
			}
			e, err := t.value(c, from, to, depth+1)
			if err != nil {
				return nil, err
			}
			v.elems = append(v.elems, e)
		}
	case unstable.String:
		v.kind = kindString
	case unstable.Bool:
		v.kind = kindBool
	case unstable.Integer, unstable.Float:
		v.kind = kindNumber
	default:
		v.kind = kindOther
	}
	return v, nil
}
