package capture

import (
	"bytes"

	"mcpwire/internal/jsonwire"
)

// judge adds the edits for a string, which is a value or a name.
func (w *walker) judge(it item, m mode) {
	text := it.raw
	if it.escaped && (m.force.kind == "" || m.force.opaque) {
		w.text = jsonwire.AppendUnquote(w.text[:0], it.raw)
		text = w.text
	}
	if m.force.kind != "" && m.force.hides(text) {
		w.conceal(it, m.force.kind)
		return
	}
	if m.env {
		// A list of variables has them as NAME=value.
		if k := bytes.IndexByte(text, '='); k <= 0 || it.escaped {
			w.conceal(it, "env")
		} else if k+1 < len(text) {
			w.r.hide(w.e, it.start+1+k+1, it.end-1, "env", text[k+1:])
			w.note()
		}
		return
	}
	if len(text) < 4 {
		return
	}
	if w.r.secretBase64(text, w.at("blob"), w.depth) {
		w.conceal(it, "blob")
		return
	}
	if it.escaped {
		w.judgeCopy(it, text, m)
		return
	}
	from := len(w.e.list)
	w.r.scanString(w.e, text, w.hit, scan{prose: m.prose})
	if len(w.e.list) == from {
		return
	}
	for i := range w.e.list[from:] {
		d := &w.e.list[from+i]
		d.start += it.start + 1
		d.end += it.start + 1
	}
	w.note()
}

// judgeCopy is judge for a string whose value is not what stands in the data. It is written anew if something in it is secret.
func (w *walker) judgeCopy(it item, text []byte, m mode) {
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
		e.settle(0)
	} else {
		w.r.scan(&e, text, scan{prose: m.prose})
		if !m.prose && bytes.Contains(text, streamLine) {
			w.r.scanJoined(&e, text, false)
		}
	}
	if len(e.list) > 0 {
		quoted := jsonwire.AppendQuote(nil, appendEdited(nil, text, e.list, e.arena))
		w.e.replace(it.start, it.end, quoted)
		w.note()
	}
	if cap(w.text) > 1<<20 {
		w.text = nil
	}
}

// at reports whether the path leads to a member of that name.
func (w *walker) at(name string) bool {
	return len(w.path) > 0 && string(w.path[len(w.path)-1].key) == name
}

// conceal replaces a string by a placeholder, whatever was found in it before.
func (w *walker) conceal(it item, kind string) {
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
	w.e.drop(it.start, it.end)
	w.r.hide(w.e, it.start+1, it.end-1, kind, secret)
	w.note()
}

// scanString is scan for the value of a JSON string, where the known secrets were looked for in the text as a whole.
func (r *Redactor) scanString(e *edits, text []byte, hit bool, how scan) {
	if !hit && len(text) < 12 && !telling(text) {
		return // too short for a shape, and no name with a value
	}
	r.scan(e, text, how)
}

// telling reports whether there may be a name with a value in a text.
func telling(text []byte) bool {
	for _, c := range text {
		switch c {
		case ':', '=', '-', '%', '&', '<', '\'', '\n':
			return true
		}
	}
	return false
}
