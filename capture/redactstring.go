package capture

import (
	"bytes"

	"mcpwire/internal/jsonwire"
)

// redactString adds the edits for a string, which is a value or a name.
func (w *walker) redactString(it stringItem, m mode) {
	text := it.raw
	if it.escaped && (m.force.kind == "" || m.force.opaque) {
		w.text = jsonwire.AppendUnquote(w.text[:0], it.raw)
		text = w.text
	}
	if m.force.kind != "" && m.force.hides(text) {
		w.replaceString(it, m.force.kind)
		return
	}
	if m.env {
		// A list of variables has them as NAME=value.
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
	w.r.scanString(w.e, text, w.hasKnown, textMode{prose: m.prose})
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

// redactEscaped is judge for a string whose value is not what stands in the data. It is written anew if something in it is secret.
func (w *walker) redactEscaped(it stringItem, text []byte, m mode) {
	var e edits
	json := false
	if !m.prose && w.depth < maxNested && (text[0] == '{' || text[0] == '[') {
		inner := walker{r: w.r, e: &e, depth: w.depth + 1}
		if json = inner.walk(text, 0) == nil; !json {
			e.reset()
		}
	}
	if json {
		w.r.scanKnown(&e, text)
		e.normalize(0)
	} else {
		w.r.scan(&e, text, textMode{prose: m.prose})
		if !m.prose && bytes.Contains(text, streamLine) {
			w.r.scanJoined(&e, text, false)
		}
	}
	if len(e.list) > 0 {
		quoted := jsonwire.AppendQuote(nil, appendEdited(nil, text, e.list, e.arena))
		w.e.replace(it.start, it.end, quoted)
		w.addPointer()
	}
	if cap(w.text) > 1<<20 {
		w.text = nil
	}
}

// atMember reports whether the path leads to a member of that name.
func (w *walker) atMember(name string) bool {
	return len(w.path) > 0 && string(w.path[len(w.path)-1].key) == name
}

// replaceString replaces a string by a placeholder, whatever was found in it before.
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

// scanString is scan for the value of a JSON string, where the known secrets were looked for in the text as a whole.
func (r *Redactor) scanString(e *edits, text []byte, hit bool, how textMode) {
	if !hit && len(text) < 12 && !mayHaveName(text) {
		return // too short for a shape, and no name with a value
	}
	r.scan(e, text, how)
}

// mayHaveName reports whether there may be a name with a value in a text.
func mayHaveName(text []byte) bool {
	for _, c := range text {
		switch c {
		case ':', '=', '-', '%', '&', '<', '\'', '\n':
			return true
		}
	}
	return false
}
