package capture

import (
	"bytes"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"mcpwire/internal/json/jsonpointer"
	"mcpwire/internal/json/jsonwire"
	"mcpwire/internal/text/lazyregexp"
)

// A walker goes through a JSON text once. It validates the text and collects the edits that hide
// secrets.
type walker struct {
	s    jsonwire.Scanner
	data []byte
	r    *Redactor
	e    *edits
	path []pathStep
	// names has those of the open objects, the innermost last. unsure reports that an object may
	// have a name twice.
	names  [][]byte
	unsure bool
	// hasKnown reports that data contains a known secret.
	hasKnown bool
	// depth counts the levels of JSON in strings.
	depth  int
	hidden *pointers
	// text is scratch space for unescaped strings.
	text []byte
}

// A pathStep is the raw name of a member or, with a nil key, the index of an element.
type pathStep struct {
	key   []byte
	index int
}

// maxNested limits the depth to which JSON in strings is parsed.
const maxNested = 3

// maxNames is the number of names of an object that are compared with each other.
const maxNames = 24

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
func (w *walker) walk(data []byte) error {
	w.s.Reset(data, 0)
	w.data, w.path, w.names, w.unsure = data, w.path[:0], w.names[:0], false
	w.hasKnown = false
	for _, secret := range w.r.known {
		w.hasKnown = w.hasKnown || bytes.Contains(data, []byte(secret))
	}
	from := len(w.e.list)
	err := w.value(mode{})
	if err == nil {
		err = w.s.End()
	}
	w.e.normalize(from)
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
	if c := w.data[start]; m.force != nil && m.force.number && (c == '-' || c >= '0' && c <= '9') {
		w.e.list = append(w.e.list, edit{start, w.s.Pos(), "0"})
		w.addPointer()
	}
	return nil
}

// A stringItem is a string in the data. start and end include the quotes.
type stringItem struct {
	raw        []byte
	escaped    bool
	start, end int
}

// plain returns the value of the string. It may use scratch as memory.
func (it stringItem) plain(scratch []byte) []byte {
	if it.escaped {
		return jsonwire.AppendUnquote(scratch[:0], it.raw)
	}
	return it.raw
}

func (w *walker) str(m mode) (stringItem, error) {
	start := w.s.Pos()
	raw, escaped, err := w.s.String()
	if err != nil {
		return stringItem{}, err
	}
	it := stringItem{raw, escaped, start, w.s.Pos()}
	if len(raw) > 0 {
		w.redactString(it, m)
	}
	return it, nil
}

func (w *walker) array(m mode) error {
	// pairs reports a list of lists, which may hold names with their values.
	pairs := len(w.path) > 0 && w.path[len(w.path)-1].key == nil
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
				if name.hides(it.raw) {
					w.replace(it, name.label)
				}
				name = nil
				// This is ["Cookie", "…"] or ["--token", "…"].
				if pairs && n == 0 || len(it.raw) > 2 && it.raw[0] == '-' {
					name = w.classify(it)
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

func (w *walker) classify(it stringItem) *secretName {
	if len(it.raw) > 64 {
		return nil
	}
	return w.r.classify(it.raw, false)
}

// cutName stands for the name of a value if the text ends before its object does.
var cutName = secretName{label: "cut", proof: provenAlways}

func (w *walker) object(m mode) error {
	more, err := w.s.EnterObject()
	w.path = append(w.path, pathStep{})
	at, names := len(w.path)-1, len(w.names)
	var named *secretName // the class of the member "name"
	var value stringItem  // of the member "value"
	for more && err == nil {
		w.s.Peek()
		key := stringItem{start: w.s.Pos()}
		if key.raw, key.escaped, err = w.s.Key(); err != nil {
			break
		}
		w.path[at].key = key.raw
		w.unsure = w.unsure || key.escaped || len(w.names)-names > maxNames || slices.ContainsFunc(w.names[names:], func(o []byte) bool { return string(o) == string(key.raw) })
		w.names = append(w.names, key.raw)
		if len(key.raw) >= 4 {
			key.end = key.start + 2 + len(key.raw)
			w.redactString(key, mode{})
		}
		child := w.childMode(m, key)
		if w.s.Peek() != '"' {
			err = w.value(child)
		} else {
			var it stringItem
			if it, err = w.str(child); err == nil {
				switch string(key.raw) {
				case "name", "key", "header", "Name", "Key", "variable", "field", "id":
					if s := w.classify(it); s != nil {
						named = s
					}
				case "value", "Value", "val":
					value = it
				}
			}
		}
		if err == nil {
			more, err = w.s.NextMember()
		}
	}
	if err != nil && named == nil {
		named = &cutName
	}
	if !m.schema && named.hides(value.raw) {
		w.path[at].key = []byte("value")
		w.replace(value, named.label)
	}
	w.path, w.names = w.path[:at], w.names[:names]
	return err
}

// childMode returns the mode for the value of a member.
func (w *walker) childMode(m mode, name stringItem) mode {
	next := w.s.Peek()
	key := name.raw
	if name.escaped {
		w.text = name.plain(w.text)
		key = w.text
	}
	s := w.r.classify(key, false)
	switch {
	case m.schema:
		return schemaMode(m, key, s, next)
	case w.isSchema(key):
		return mode{schema: true}
	case m.env && (string(key) == "name" || string(key) == "key"):
		return mode{}
	case m.force != nil || m.env:
		return m
	case next == '"' && w.isProse(key):
		return mode{prose: true}
	case s != nil && (next == '"' || s.proof <= provenAlways):
		return mode{force: s}
	}
	return mode{env: isEnvironment(key)}
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

// schemaPath matches the paths of members that hold a JSON Schema according to the protocol, and
// prosePath those that describe something in a result: a list entry or the server. Descriptions
// mention secrets but have none, and comparing a server with its capture needs them unchanged.
var (
	schemaPath = lazyregexp.New(`^(?:/(?:result|params)/tools/#/(?:input|output)Schema|(?:/result/inputRequests/[^/]*)?/params/requestedSchema)$`)
	prosePath  = lazyregexp.New(`^/result/(?:instructions|serverInfo/(?:.*/)?\w+|(?:tools|prompts|resources|resourceTemplates)/#/(?:.*/)?\w+)$`)
)

// at reports whether the path with that key matches a pattern. In the path, "#" stands for an
// index, and the index in a batch is left out.
func (w *walker) at(pattern *regexp.Regexp, key []byte) bool {
	var path []byte
	for i, s := range w.path[:min(len(w.path)-1, 16)] {
		if s.key != nil {
			path = append(append(path, '/'), s.key...)
		} else if i > 0 {
			path = append(path, "/#"...)
		}
	}
	return pattern.Match(append(append(path, '/'), key...))
}

func (w *walker) isProse(key []byte) bool {
	switch string(key) {
	case "description", "title", "instructions":
		return w.at(prosePath(), key)
	}
	return false
}

func (w *walker) isSchema(key []byte) bool {
	return bytes.HasSuffix(key, []byte("Schema")) && w.at(schemaPath(), key)
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
			h = r.Text(h)
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
		if s.key == nil {
			b = strconv.AppendInt(b, int64(s.index), 10)
		} else if name := w.r.Text(jsonwire.UnquoteString(s.key)); len(name) > 256 {
			b = append(b, "…"...)
		} else {
			b = append(b, jsonpointer.Escape(name)...)
		}
	}
	w.hidden.add(string(b))
}

// redactString adds the edits for a string, which is a value or a name.
func (w *walker) redactString(it stringItem, m mode) {
	blob := len(w.path) > 0 && string(w.path[len(w.path)-1].key) == "blob"
	if m == (mode{}) && w.depth == 0 && !blob {
		clean := w.r.cleanStrings.slot(it.raw)
		if string(*clean) == string(it.raw) {
			return
		}
		defer func(edits int) {
			if len(w.e.list) == edits && len(it.raw) <= maxClean {
				*clean = append((*clean)[:0], it.raw...)
			}
		}(len(w.e.list))
	}
	text := it.raw
	if it.escaped {
		w.text = it.plain(w.text)
		text = w.text
	}
	switch {
	case m.force.hides(text):
		w.replace(it, m.force.label)
		return
	case m.env && standIn(text) < len(text) && !w.isStage(text):
		// A list of variables has entries of the form NAME=value.
		if k := bytes.IndexByte(text, '='); k <= 0 || it.escaped {
			w.replace(it, "env")
		} else if k+1 < len(text) {
			w.e.hide(w.r, it.start+1+k+1, it.end-1, "env", text[k+1:])
			w.addPointer()
		}
		return
	case len(text) < 4:
		return
	case w.r.secretBase64(text, blob, w.depth):
		w.replace(it, "blob")
		return
	}
	from := len(w.e.list)
	if it.escaped {
		w.redactEscaped(it, text, m)
		return
	}
	w.r.scan(w.e, text, textMode{prose: m.prose, noKnown: !w.hasKnown})
	if len(w.e.list) == from {
		return
	}
	for i := range w.e.list[from:] {
		w.e.list[from+i].start += it.start + 1
		w.e.list[from+i].end += it.start + 1
	}
	w.addPointer()
}

// isStage reports whether the string at the path is the name of an environment, such as
// "production".
func (w *walker) isStage(text []byte) bool {
	return len(text) <= len("preproduction") && !isOpaque(text, "") && !bytes.ContainsAny(text, "= \r\n") && isEnvironment(w.path[len(w.path)-1].key)
}

// redactEscaped is redactString for a string with escapes; text is its value. It encodes the string
// again if it contains a secret.
func (w *walker) redactEscaped(it stringItem, text []byte, m mode) {
	e := new(edits)
	json := false
	if !m.prose && w.depth < maxNested && (text[0] == '{' || text[0] == '[') {
		inner := &walker{r: w.r, e: e, depth: w.depth + 1}
		if json = inner.walk(text) == nil; !json {
			e.reset()
		}
	}
	if json {
		w.r.scanKnown(e, text)
		e.normalize(0)
	} else {
		w.r.scan(e, text, textMode{prose: m.prose})
		if !m.prose {
			w.r.scanJoined(e, text, false)
		}
	}
	if len(e.list) > 0 {
		w.e.list = append(w.e.list, edit{it.start, it.end, string(jsonwire.AppendQuote(nil, e.append(nil, text)))})
		w.addPointer()
	}
	if cap(w.text) > 1<<20 {
		w.text = nil
	}
}

// replace replaces a string by a placeholder, and drops earlier edits in it.
func (w *walker) replace(it stringItem, label string) {
	secret := it.plain(nil)
	if isPlaceholder(secret) {
		return
	}
	w.e.list = slices.DeleteFunc(w.e.list, func(d edit) bool { return d.start >= it.start && d.end <= it.end })
	w.e.hide(w.r, it.start+1, it.end-1, label, secret)
	w.addPointer()
}
