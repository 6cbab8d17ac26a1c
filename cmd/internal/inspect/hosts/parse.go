package hosts

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"

	"mcpwire/internal/text/lazyregexp"

	"github.com/pelletier/go-toml/v2"
	"github.com/pelletier/go-toml/v2/unstable"
	"github.com/tailscale/hujson"
	"go.yaml.in/yaml/v4"
)

// Limits on files. They exceed the files of hosts, such as Claude Code's ~/.claude.json with its
// history, and limit a hostile file to about 200 MiB of memory and a second.
const (
	MaxFileBytes = 16 << 20
	MaxDepth     = 256
	MaxValues    = 200_000
)

// A kind is the type of a value.
type kind byte

const (
	kindObject kind = iota
	kindArray
	kindString
	kindBool
	kindNumber
	kindOther
)

// A node is a value of a document with its position in the text. A TOML table with lines in several
// places has no position.
type node struct {
	kind       kind
	start, end int
	// text is the value of a string, or the source text of other scalars.
	text    string
	members []member
	elems   []*node
}

// A member is a name with its value.
type member struct {
	name string
	// keyStart and keyEnd delimit the last part of a dotted key.
	keyStart, keyEnd int
	// lineKey is the start of the whole key.
	lineKey int
	block   bool
	value   *node
}

// get returns the last member with a name, as JSON.parse does, or nil.
func (n *node) get(name string) *member {
	if n == nil || n.kind != kindObject {
		return nil
	}
	for i := len(n.members) - 1; i >= 0; i-- {
		if n.members[i].name == name {
			return &n.members[i]
		}
	}
	return nil
}

// hasDuplicate reports whether a name occurs more than once.
func (n *node) hasDuplicate(name string) bool {
	seen := false
	for _, m := range n.members {
		if m.name == name {
			if seen {
				return true
			}
			seen = true
		}
	}
	return false
}

// lookup follows names from n. It returns nil if one is missing.
func (n *node) lookup(names []string) *node {
	for _, name := range names {
		m := n.get(name)
		if m == nil {
			return nil
		}
		n = m.value
	}
	return n
}

// A ParseError reports an error in a file. It quotes only names from the file.
type ParseError struct {
	Path string
	// Line and Column count from 1, Column in bytes. Line is 0 if the error is about the whole
	// file.
	Line, Column int
	Reason       string
}

func (e *ParseError) Error() string {
	if e.Line == 0 {
		return fmt.Sprintf("%s: %s", e.Path, e.Reason)
	}
	return fmt.Sprintf("%s:%d:%d: %s", e.Path, e.Line, e.Column, e.Reason)
}

func position(data []byte, offset int) (line, column int) {
	offset = min(offset, len(data))
	return 1 + bytes.Count(data[:offset], []byte("\n")), offset - bytes.LastIndexByte(data[:offset], '\n')
}

// A syntax is a document format.
type syntax byte

const (
	syntaxJSON syntax = iota // with comments and trailing commas
	syntaxTOML
	syntaxYAML // only read
)

// syntaxOf returns the syntax of a file, from its name or its first character.
func syntaxOf(path string, data []byte) syntax {
	switch lower := strings.ToLower(path); {
	case strings.HasSuffix(lower, ".toml"):
		return syntaxTOML
	case strings.HasSuffix(lower, ".json"), strings.HasSuffix(lower, ".jsonc"), strings.HasSuffix(lower, ".json5"):
		return syntaxJSON
	case strings.HasSuffix(lower, ".yaml"), strings.HasSuffix(lower, ".yml"):
		return syntaxYAML
	}
	if rest := bytes.TrimSpace(bytes.TrimPrefix(data, bom)); len(rest) > 0 && (rest[0] == '{' || rest[0] == '/') {
		return syntaxJSON
	}
	return syntaxTOML
}

// bom is the mark with which editors on Windows begin files.
var bom = []byte("\xef\xbb\xbf")

// parse parses a document. An empty document, which some hosts leave behind, is an empty table. It
// returns a *ParseError without a path.
func parse(data []byte, syn syntax) (*node, error) {
	if len(data) > MaxFileBytes {
		return nil, &ParseError{Reason: tooBig}
	}
	if i := bytes.IndexByte(data, 0); i >= 0 {
		return nil, errorAt(data, i, "NUL byte: not a text file")
	}
	skip := 0
	if bytes.HasPrefix(data, bom) {
		skip = len(bom)
	}
	if len(bytes.TrimSpace(data[skip:])) == 0 {
		return &node{kind: kindObject, start: len(data), end: len(data)}, nil
	}
	switch syn {
	case syntaxTOML:
		return parseTOML(data, skip)
	case syntaxYAML:
		return parseYAML(data, skip)
	}
	return parseJSON(data, skip)
}

var tooBig = fmt.Sprintf("the file is larger than %d MiB", MaxFileBytes>>20)

func errorAt(data []byte, offset int, problem string) *ParseError {
	line, column := position(data, offset)
	return &ParseError{Line: line, Column: column, Reason: problem}
}

func withPath(err error, path string) error {
	if p, ok := errors.AsType[*ParseError](err); ok {
		p.Path = path
	}
	return err
}

// parseJSON parses data[skip:] as JSON with comments and trailing commas.
func parseJSON(data []byte, skip int) (*node, error) {
	if err := guardJSON(data, skip); err != nil {
		return nil, err
	}
	// Hosts accept a comment at the end of the file, but the parser does not. The capacity limit
	// forces a copy.
	text := append(data[skip:len(data):len(data)], '\n')
	v, err := hujson.Parse(text)
	if err != nil {
		return nil, jsonError(data, skip, err)
	}
	return jsonNode(&v, skip), nil
}

func jsonNode(v *hujson.Value, skip int) *node {
	n := &node{start: v.StartOffset + skip, end: v.EndOffset + skip}
	switch x := v.Value.(type) {
	case *hujson.Object:
		n.kind = kindObject
		n.members = make([]member, len(x.Members))
		for i := range x.Members {
			m := &x.Members[i]
			name, _ := m.Name.Value.(hujson.Literal)
			from, to := m.Name.StartOffset+skip, m.Name.EndOffset+skip
			n.members[i] = member{name: name.String(), keyStart: from, lineKey: from, keyEnd: to, value: jsonNode(&m.Value, skip)}
		}
	case *hujson.Array:
		n.kind = kindArray
		n.elems = make([]*node, len(x.Elements))
		for i := range x.Elements {
			n.elems[i] = jsonNode(&x.Elements[i], skip)
		}
	case hujson.Literal:
		n.text = x.String()
		switch x.Kind() {
		case '"':
			n.kind = kindString
		case 't', 'f':
			n.kind = kindBool
		case '0':
			n.kind = kindNumber
		default:
			n.kind = kindOther
		}
	}
	return n
}

// guardJSON rejects text that would cost the parser too much memory or stack. It recognizes only
// strings and comments.
func guardJSON(data []byte, skip int) error {
	depth, values := 0, 0
	for i := skip; i < len(data); i++ {
		switch data[i] {
		case '{', '[':
			if depth++; depth > MaxDepth {
				return errorAt(data, i, fmt.Sprintf("nested more than %d deep", MaxDepth))
			}
		case '}', ']':
			depth--
		case ',', ':':
			if values++; values > MaxValues {
				return errorAt(data, i, fmt.Sprintf("more than %d values", MaxValues))
			}
		case '"':
			for i++; i < len(data) && data[i] != '"'; i++ {
				if data[i] == '\\' {
					i++
				}
			}
		case '/':
			i = skipComment(data, i)
		}
	}
	return nil
}

// skipComment returns the offset of the last byte of a comment at i, or i.
func skipComment(data []byte, i int) int {
	rest := data[i+1:]
	end := "\n"
	switch {
	case bytes.HasPrefix(rest, []byte("*")):
		rest, end, i = rest[1:], "*/", i+1
	case !bytes.HasPrefix(rest, []byte("/")):
		return i
	}
	j := bytes.Index(rest, []byte(end))
	if j < 0 {
		return len(data)
	}
	return i + j + len(end)
}

var jsonPlace = lazyregexp.New(`^hujson: line (\d+), column (\d+): `)

// jsonError converts an error of the parser, which may quote values that are secrets.
func jsonError(data []byte, skip int, err error) error {
	text := err.Error()
	m := jsonPlace().FindStringSubmatch(text)
	if m == nil {
		return &ParseError{Reason: "not JSON"}
	}
	line, _ := strconv.Atoi(m[1])
	column, _ := strconv.Atoi(m[2])
	if line == 1 {
		column += skip
	}
	if n, _ := position(data, len(data)); line > n { // after the added line end
		line, column = position(data, len(data))
	}
	text = text[len(m[0]):]
	switch {
	case strings.HasPrefix(text, "invalid literal"):
		text = "neither a string, a number, true, false nor null"
	case strings.HasSuffix(text, "unexpected EOF"):
		text = "unexpected end of file"
	}
	return &ParseError{Line: line, Column: column, Reason: text}
}

// yamlNames maps the names of members in YAML, which only Goose has, to those of other hosts.
var yamlNames = map[string]string{"cmd": "command", "envs": "env", "uri": "url"}

// parseYAML parses data[skip:] as YAML, with the names of other hosts.
func parseYAML(data []byte, skip int) (*node, error) {
	if bytes.Count(data, []byte(":"))+bytes.Count(data, []byte(","))+bytes.Count(data, []byte("- ")) > MaxValues {
		return nil, &ParseError{Reason: fmt.Sprintf("more than %d values", MaxValues)}
	}
	var document yaml.Node
	if err := yaml.NewDecoder(bytes.NewReader(data[skip:])).Decode(&document); errors.Is(err, io.EOF) {
		return &node{kind: kindObject, start: len(data), end: len(data)}, nil
	} else if err != nil {
		if e, ok := errors.AsType[*yaml.LoadError](err); ok {
			// The text of the error may quote a secret.
			return nil, &ParseError{Line: e.Mark.Line, Column: e.Mark.Column, Reason: "not YAML"}
		}
		return nil, &ParseError{Reason: "not YAML"}
	}
	starts := []int{skip}
	for i, c := range data {
		if c == '\n' {
			starts = append(starts, i+1)
		}
	}
	y := yamlReader{data: data, starts: starts}
	return y.node(&document, 0)
}

type yamlReader struct {
	data []byte
	// starts has the offset of each line.
	starts []int
}

func (y *yamlReader) node(v *yaml.Node, depth int) (*node, error) {
	n := &node{kind: kindOther}
	if v.Line > 0 && v.Line <= len(y.starts) {
		n.start = min(y.starts[v.Line-1]+max(v.Column-1, 0), len(y.data))
		n.end = n.start
	}
	if depth > MaxDepth {
		return nil, errorAt(y.data, n.start, fmt.Sprintf("nested more than %d deep", MaxDepth))
	}
	switch v.Kind {
	case yaml.DocumentNode:
		return y.node(v.Content[0], depth)
	case yaml.MappingNode:
		n.kind = kindObject
		for i := 0; i+1 < len(v.Content); i += 2 {
			value, err := y.node(v.Content[i+1], depth+1)
			if err != nil {
				return nil, err
			}
			name := v.Content[i].Value
			n.members = append(n.members, member{name: cmp.Or(yamlNames[name], name), value: value})
		}
	case yaml.SequenceNode:
		n.kind = kindArray
		for _, e := range v.Content {
			elem, err := y.node(e, depth+1)
			if err != nil {
				return nil, err
			}
			n.elems = append(n.elems, elem)
		}
	case yaml.ScalarNode:
		n.text = v.Value
		switch v.ShortTag() {
		case "!!str":
			n.kind = kindString
		case "!!bool":
			n.kind = kindBool
		case "!!int", "!!float":
			n.kind = kindNumber
		}
	default:
		return nil, errorAt(y.data, n.start, "aliases are not supported")
	}
	return n, nil
}

// parseTOML parses data[skip:] as TOML (https://toml.io/en/v1.0.0).
func parseTOML(data []byte, skip int) (*node, error) {
	text := data[skip:]
	if bytes.Count(text, []byte(","))+bytes.Count(text, []byte("="))+bytes.Count(text, []byte("[")) > MaxValues {
		return nil, &ParseError{Reason: fmt.Sprintf("more than %d values", MaxValues)}
	}
	// The decoder rejects duplicates; the parser below gives positions.
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
		// The decoder has already accepted it.
		return nil, &ParseError{Reason: "not TOML"}
	}
	return t.root, nil
}

// bareMessage returns the decoder's message without quoted text, except for names of keys.
func bareMessage(d *toml.DecodeError) string {
	text := d.Error()
	if i := bytes.IndexByte([]byte(text), '"'); i > 0 {
		text = text[:i] + "…"
	}
	return text[min(len("toml: "), len(text)):]
}

// A tomlTree is a TOML document being parsed.
type tomlTree struct {
	data []byte
	// skip is the number of bytes before data in the file.
	skip   int
	parser unstable.Parser
	root   *node
	// table is the table of the current lines.
	table *node
	index map[*node]map[string]*node
}

// child returns the child of a table with the name of key. It creates it with the kind want if
// needed.
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

// header returns the table that a header names, and creates it and its parents if needed.
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

// value converts a value between two offsets of data. The parser gives positions only for scalars,
// so a compound value inside an array gets the position of the array, where nothing is edited.
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
