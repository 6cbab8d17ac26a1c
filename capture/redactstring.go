package capture

import (
	"bytes"

	"mcpwire/internal/jsonwire"
)

// judge adds the edits for a string, which is a value or a name.
func (w *walker) judge(it item, m mode) {
	if m.force.kind != "" {
		w.conceal(it, m.force.kind)
		return
	}
	text := it.raw
	if it.escaped {
		w.text = jsonwire.AppendUnquote(w.text[:0], it.raw)
		text = w.text
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
	if it.escaped {
		w.judgeCopy(it, text)
		return
	}
	from := len(w.e.list)
	w.r.scanString(w.e, text, w.hit)
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
func (w *walker) judgeCopy(it item, text []byte) {
	var e edits
	json := false
	if w.depth < maxNested && (text[0] == '{' || text[0] == '[') {
		inner := walker{r: w.r, e: &e, depth: w.depth + 1}
		if json = inner.walk(text, 0) == nil; !json {
			e.reset()
		}
	}
	if json {
		w.r.scanKnown(&e, text)
		e.settle(0)
	} else {
		w.r.scanText(&e, text)
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

// scanString is scanText for the value of a JSON string, where the known secrets were looked for in the text as a whole.
func (r *Redactor) scanString(e *edits, text []byte, hit bool) {
	if !hit && len(text) < 12 && !bytes.ContainsAny(text, ":=-") {
		return // too short for a shape, and no name with a value
	}
	r.scanText(e, text)
}
