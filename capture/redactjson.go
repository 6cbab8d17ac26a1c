package capture

import (
	"bytes"
	"hash/maphash"
	"slices"
	"strconv"
	"strings"

	"mcpwire/internal/json/jsonpointer"
	"mcpwire/internal/json/jsonwire"
)

// A walker goes through a JSON text once. It validates the text, finds duplicate names, and
// collects the edits that hide secrets.
type walker struct {
	s    jsonwire.Scanner
	data []byte
	// dup reports a duplicate name in an object.
	dup bool

	// r is nil to hide nothing.
	r    *Redactor
	e    *edits
	path []pathStep
	// keys has the names in the open objects, the innermost last.
	keys []memberName
	// hasKnown reports that data contains a known secret.
	hasKnown bool
	// depth counts the levels of JSON in strings.
	depth  int
	hidden *pointers
	// text is scratch space for unescaped strings.
	text []byte
	// inner and innerEdits are scratch space for JSON in a string.
	inner      *walker
	innerEdits edits
}

// A pathStep is the raw name of a member, or the index of an element.
type pathStep struct {
	key []byte
	// index is -1 for members.
	index int
}

type memberName struct {
	raw     []byte
	escaped bool
}

// maxNested limits the depth to which JSON in strings is parsed.
const maxNested = 3

// A mode says how to redact the values below a member.
type mode struct {
	// force, if not nil, hides every string, and every number if number is set.
	force *secretName
	// env marks values of environment variables.
	env bool
	// schema marks a JSON Schema, where a name belongs to a property and not to its value.
	schema bool
	// prop is the property that the schema describes, if it has the name of a secret, or nil.
	prop *secretName
	// prose marks descriptions in lists and schemas, which name secrets but have none.
	prose bool
}

// walk walks data. The error is a *jsonwire.SyntaxError.
func (w *walker) walk(data []byte, depth int) error {
	w.s.Reset(data, depth)
	w.data, w.dup = data, false
	w.path, w.keys = w.path[:0], w.keys[:0]
	if w.r != nil {
		w.hasKnown = w.r.hasKnown(data)
	}
	from := 0
	if w.e != nil {
		from = len(w.e.list)
	}
	err := w.value(mode{})
	if err == nil {
		err = w.s.End()
	}
	if w.e != nil {
		w.e.normalize(from)
	}
	return err
}

func (w *walker) value(m mode) error {
	switch w.s.Peek() {
	case '{':
		return w.object(m)
	case '[':
		return w.array(m)
	case '"':
		_, err := w.str(m)
		return err
	}
	start := w.s.Pos()
	if err := w.s.Skip(); err != nil {
		return err
	}
	if c := w.data[start]; w.r != nil && m.force != nil && m.force.number && (c == '-' || c >= '0' && c <= '9') {
		w.e.replace(start, w.s.Pos(), []byte("0"))
		w.addPointer()
	}
	return nil
}

// A stringItem is a string in the data.
type stringItem struct {
	raw     []byte
	escaped bool
	// start and end include the quotes.
	start, end int
}

func (w *walker) str(m mode) (stringItem, error) {
	start := w.s.Pos()
	raw, escaped, err := w.s.String()
	if err != nil {
		return stringItem{}, err
	}
	it := stringItem{raw, escaped, start, w.s.Pos()}
	if w.r != nil && len(raw) > 0 {
		w.redactString(it, m)
	}
	return it, nil
}

func (w *walker) array(m mode) error {
	// pairs reports a list of lists, which may hold names with their values.
	pairs := len(w.path) > 0 && w.path[len(w.path)-1].index >= 0
	more, err := w.s.EnterArray()
	w.path = append(w.path, pathStep{})
	at := len(w.path) - 1
	var name *secretName // what the previous element says about this one
	for n := 0; more && err == nil; n++ {
		w.path[at] = pathStep{index: n}
		if w.s.Peek() != '"' {
			name = nil
			err = w.value(m)
		} else {
			var it stringItem
			if it, err = w.str(m); err == nil && !m.schema {
				if len(it.raw) > 0 && name.hides(it.raw) {
					w.replaceString(it, name.kind)
				}
				name = nil
				// This is ["Cookie", "…"] or ["--token", "…"].
				if pairs && n == 0 || len(it.raw) > 2 && it.raw[0] == '-' {
					name = w.classifyItem(it)
				}
			}
		}
		if err == nil {
			more, err = w.s.NextElement()
		}
	}
	w.path = w.path[:at]
	return err
}

// classifyItem classifies a string as a name.
func (w *walker) classifyItem(it stringItem) *secretName {
	if w.r == nil || len(it.raw) > 64 {
		return nil
	}
	return w.r.classify(it.raw, false)
}

func (w *walker) object(m mode) error {
	more, err := w.s.EnterObject()
	base := len(w.keys)
	var seen map[uint64]struct{}
	w.path = append(w.path, pathStep{index: -1})
	at := len(w.path) - 1
	var named *secretName // the class of the member "name"
	var value stringItem  // of the member "value"
	for more && err == nil {
		w.s.Peek()
		start := w.s.Pos()
		var k memberName
		if k.raw, k.escaped, err = w.s.Key(); err != nil {
			break
		}
		seen = w.checkDuplicate(k, base, seen)
		w.path[at].key = k.raw
		if w.r != nil && len(k.raw) >= 4 {
			w.redactString(stringItem{k.raw, k.escaped, start, start + 2 + len(k.raw)}, mode{})
		}
		child := m
		if w.r != nil {
			child = w.childMode(m, k)
		}
		if w.s.Peek() == '"' {
			var it stringItem
			if it, err = w.str(child); err == nil {
				switch role(k.raw) {
				case roleName:
					if s := w.classifyItem(it); s != nil {
						named = s
					}
				case roleValue:
					value = it
				}
			}
		} else if w.isRepeatable() {
			err = w.repeated(child)
		} else {
			err = w.value(child)
		}
		if err == nil {
			more, err = w.s.NextMember()
		}
	}
	if err != nil && named == nil {
		named = &cutName
	}
	if len(value.raw) > 0 && !m.schema && named.hides(value.raw) {
		w.path[at].key = []byte("value")
		w.replaceString(value, named.kind)
	}
	w.path, w.keys = w.path[:at], w.keys[:base]
	return err
}

// cutName stands for the name of a value if the text ends before its object does.
var cutName = secretName{kind: "cut"}

type keyRole int

const (
	roleNone  keyRole = iota
	roleName          // names the value
	roleValue         // holds the value
)

func role(key []byte) keyRole {
	switch string(key) {
	case "name", "key", "header", "Name", "Key", "variable", "field", "id":
		return roleName
	case "value", "Value", "val":
		return roleValue
	}
	return roleNone
}

// fewKeys is the number of names up to which they are compared one by one.
const fewKeys = 24

var seed = maphash.MakeSeed()

// checkDuplicate notes a name of the object whose names begin at base. For many names it keeps only
// hashes; a collision only means that the message is stored as a string.
func (w *walker) checkDuplicate(k memberName, base int, seen map[uint64]struct{}) map[uint64]struct{} {
	sum := func(k memberName) uint64 {
		if k.escaped {
			return maphash.String(seed, jsonwire.UnquoteString(k.raw))
		}
		return maphash.Bytes(seed, k.raw)
	}
	if len(w.keys)-base < fewKeys {
		for _, o := range w.keys[base:] {
			if !k.escaped && !o.escaped {
				w.dup = w.dup || string(k.raw) == string(o.raw)
			} else {
				w.dup = w.dup || jsonwire.UnquoteString(k.raw) == jsonwire.UnquoteString(o.raw)
			}
		}
		w.keys = append(w.keys, k)
		return nil
	}
	if seen == nil {
		seen = make(map[uint64]struct{})
		for _, o := range w.keys[base:] {
			seen[sum(o)] = struct{}{}
		}
	}
	h := sum(k)
	if _, ok := seen[h]; ok {
		w.dup = true
	}
	seen[h] = struct{}{}
	return seen
}

// childMode returns the mode for the value of a member. w.r must not be nil.
func (w *walker) childMode(m mode, k memberName) mode {
	key := k.raw
	if k.escaped {
		key = []byte(jsonwire.UnquoteString(k.raw))
	}
	if !m.schema && w.isSchema() {
		return mode{schema: true}
	}
	name := w.r.classify(key, false)
	if m.schema {
		return schemaMode(m, key, name, w.s.Peek())
	}
	if m.force == nil && !m.env && w.s.Peek() == '"' && w.isProse(key) {
		return mode{prose: true}
	}
	if m.prose {
		m = mode{}
	}
	switch {
	case m.env && (string(key) == "name" || string(key) == "key"):
		return mode{}
	case m.force != nil || m.env:
		return m
	case name != nil && name.opaque && w.s.Peek() != '"':
		return m
	case name != nil:
		return mode{force: name}
	case isEnvironment(key):
		return mode{env: true}
	}
	return m
}

// schemaMode is childMode inside a JSON Schema. There, a member with the name of a secret is a
// property with an object as its schema; only the values that the schema proposes are hidden.
func schemaMode(m mode, key []byte, name *secretName, next byte) mode {
	switch string(key) {
	case "default", "const", "examples":
		return mode{force: m.prop}
	case "description", "title", "markdownDescription", "$comment":
		return mode{schema: true, prose: next == '"'}
	case "enum", "required", "type", "format", "pattern", "$ref", "$id", "$schema":
		return mode{schema: true}
	}
	switch {
	case name != nil && next == '{':
		return mode{schema: true, prop: name}
	case name != nil && (next == '"' || next >= '0' && next <= '9'):
		return mode{force: name}
	}
	return mode{schema: true, prop: m.prop}
}

// isProse reports whether the member at the path describes something in a result: a list entry or
// the server. Descriptions mention secrets but have none, and comparing a server with its capture
// needs them unchanged.
func (w *walker) isProse(key []byte) bool {
	switch string(key) {
	case "description", "title", "instructions":
	default:
		return false
	}
	path := w.path
	if len(path) > 0 && path[0].index >= 0 && len(path[0].key) == 0 {
		path = path[1:] // a batch
	}
	if len(path) < 2 || string(path[0].key) != "result" {
		return false
	}
	switch string(path[1].key) {
	case "instructions":
		return len(path) == 2
	case "tools", "prompts", "resources", "resourceTemplates":
		return len(path) > 3 && path[2].index >= 0
	case "serverInfo":
		return true
	}
	return false
}

// isSchema reports whether the member at the path holds a JSON Schema, according to the protocol.
func (w *walker) isSchema() bool {
	path := w.path
	last := string(path[len(path)-1].key)
	switch last {
	case "inputSchema", "outputSchema", "requestedSchema":
	default:
		return false
	}
	path = path[:len(path)-1]
	if len(path) > 0 && path[0].index >= 0 && len(path[0].key) == 0 {
		path = path[1:] // a batch
	}
	var b strings.Builder
	for _, s := range path {
		b.WriteByte('/')
		if s.index >= 0 && s.key == nil {
			b.WriteByte('#')
		} else if b.Len() > 64 {
			return false
		} else {
			b.Write(s.key)
		}
	}
	at := b.String()
	if rest, ok := strings.CutPrefix(at, "/result/inputRequests/"); ok {
		if i := strings.IndexByte(rest, '/'); i >= 0 {
			at = rest[i:]
		}
	}
	if last == "requestedSchema" {
		return at == "/params"
	}
	return at == "/result/tools/#" || at == "/params/tools/#"
}

// pointers lists the hidden values of one event.
type pointers struct {
	list  []string
	bytes int
	more  int
}

const (
	maxPointers     = 64
	maxPointerBytes = 8 << 10
)

func (p *pointers) add(pointer string) {
	if len(p.list) > 0 && p.list[len(p.list)-1] == pointer {
		return
	}
	if len(p.list) == maxPointers || p.bytes+len(pointer) > maxPointerBytes {
		p.more++
		return
	}
	p.list = append(p.list, pointer)
	p.bytes += len(pointer)
}

// inherit adds the hidden values of an event that is being copied from another capture.
func (p *pointers) inherit(e *Event, r *Redactor) {
	for _, h := range e.Redacted {
		if r != nil {
			h = r.redactText(h)
		}
		if strings.HasPrefix(h, "/") && !slices.Contains(p.list, h) {
			p.add(h)
		}
	}
	p.more += e.RedactedMore
}

// addPointer lists the value at the path.
func (w *walker) addPointer() {
	if w.hidden == nil {
		return
	}
	if len(w.hidden.list) >= maxPointers || len(w.path) > 64 {
		w.hidden.more++
		return
	}
	b := []byte("/msg")
	for _, s := range w.path {
		b = append(b, '/')
		if s.index >= 0 {
			b = strconv.AppendInt(b, int64(s.index), 10)
			continue
		}
		b = w.r.appendPointer(b, jsonwire.UnquoteString(s.key))
	}
	w.hidden.add(string(b))
}

// appendPointer appends a name as a token of a JSON pointer, with its secrets hidden.
func (r *Redactor) appendPointer(dst []byte, name string) []byte {
	var e edits
	r.scanText(&e, []byte(name))
	if len(e.list) > 0 {
		name = string(appendEdited(nil, []byte(name), e.list, e.arena))
	}
	if len(name) > 256 {
		return append(dst, "…"...)
	}
	return append(dst, jsonpointer.Escape(name)...)
}

// redactString adds the edits for a string, which is a value or a name.
func (w *walker) redactString(it stringItem, m mode) {
	text := it.raw
	if it.escaped && (m.force == nil || m.force.opaque) {
		w.text = jsonwire.AppendUnquote(w.text[:0], it.raw)
		text = w.text
	}
	if m.force.hides(text) {
		w.replaceString(it, m.force.kind)
		return
	}
	if m.env {
		// A list of variables has entries of the form NAME=value.
		if k := bytes.IndexByte(text, '='); k <= 0 || it.escaped {
			w.replaceString(it, "env")
		} else if k+1 < len(text) {
			w.r.hide(w.e, it.start+1+k+1, it.end-1, "env", text[k+1:])
			w.addPointer()
		}
		return
	}
	if len(text) < 4 {
		return
	}
	if w.r.secretBase64(text, w.atMember("blob"), w.depth) {
		w.replaceString(it, "blob")
		return
	}
	if it.escaped {
		w.redactEscaped(it, text, m)
		return
	}
	from := len(w.e.list)
	w.r.scanString(w.e, text, textMode{prose: m.prose, noKnown: !w.hasKnown})
	if len(w.e.list) == from {
		return
	}
	for i := range w.e.list[from:] {
		d := &w.e.list[from+i]
		d.start += it.start + 1
		d.end += it.start + 1
	}
	w.addPointer()
}

// redactEscaped is redactString for a string with escapes; text is its value. It encodes the string
// again if it contains a secret.
func (w *walker) redactEscaped(it stringItem, text []byte, m mode) {
	e := &w.innerEdits
	e.reset()
	json := false
	if !m.prose && w.depth < maxNested && (text[0] == '{' || text[0] == '[') {
		if w.inner == nil {
			w.inner = &walker{r: w.r, e: e, depth: w.depth + 1}
		}
		if json = w.inner.walk(text, 0) == nil; !json {
			e.reset()
		}
	}
	if json {
		w.r.scanKnown(e, text)
		e.normalize(0)
	} else {
		w.r.scan(e, text, textMode{prose: m.prose})
		if !m.prose && bytes.Contains(text, streamLine) {
			w.r.scanJoined(e, text, false)
		}
	}
	if len(e.list) > 0 {
		quoted := jsonwire.AppendQuote(nil, appendEdited(nil, text, e.list, e.arena))
		w.e.replace(it.start, it.end, quoted)
		w.addPointer()
	}
	if cap(w.text) > 1<<20 {
		w.text, w.inner = nil, nil // which refers to it
	}
}

// atMember reports whether the path ends in a member with that name.
func (w *walker) atMember(name string) bool {
	return len(w.path) > 0 && string(w.path[len(w.path)-1].key) == name
}

// replaceString replaces a string by a placeholder, and drops earlier edits in it.
func (w *walker) replaceString(it stringItem, kind string) {
	if w.r == nil {
		return
	}
	secret := it.raw
	if it.escaped {
		secret = []byte(jsonwire.UnquoteString(it.raw))
	}
	if isPlaceholder(secret) {
		return
	}
	w.e.remove(it.start, it.end)
	w.r.hide(w.e, it.start+1, it.end-1, kind, secret)
	w.addPointer()
}

// scanString is scan for the value of a JSON string.
func (r *Redactor) scanString(e *edits, text []byte, how textMode) {
	if how.noKnown && len(text) < minShape && !mayHaveName(text) {
		return // too short for a shape, and without a name
	}
	r.scan(e, text, how)
}

// mayHaveName reports whether a text may contain a name with a value.
func mayHaveName(text []byte) bool {
	for _, c := range text {
		switch c {
		case ':', '=', '-', '%', '&', '<', '\'', '\n':
			return true
		}
	}
	return false
}
