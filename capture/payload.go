package capture

import (
	"bytes"
	"errors"
	"unicode/utf8"

	"mcpwire/internal/jsonwire"
)

// A form is how a payload stands in a line.
type form uint8

const (
	formNone    form = iota
	formMessage      // as it is: one JSON text, in the member msg
	formRaw          // as a string
	formBase64       // as a string in base64
)

// A payload is what becomes of Event.Data.
type payload struct {
	form   form
	kind   Kind
	why    string
	edits  edits
	hidden pointers
	walk   walker
	raw    bool // the pointers are of no use, because the payload is a string
}

// prepare decides how the payload of e is written, and what of it is hidden. r is nil if nothing is.
func (p *payload) prepare(e *Event, r *Redactor) {
	p.form, p.kind, p.why, p.raw = formNone, e.Kind, "", false
	p.edits.reset()
	p.hidden = pointers{list: p.hidden.list[:0]}
	frame := e.Kind == KindMessage || e.Kind == KindInvalid
	if frame {
		p.kind = KindMessage
	}
	if e.Data == nil && !frame {
		return
	}
	p.form = formRaw
	switch {
	case r != nil && (e.Part > 0 || e.Encoding != "" && lower(e.Encoding) != "identity"):
		// Half a secret does not show what it is, and a compressed one neither.
		r.redactAll(&p.edits, e.Data, "part")
	case e.Kind == KindStderr || e.Kind == KindNote || e.Kind == KindEnd:
		p.prepareLine(e, r)
	case frame || looksJSON(e.Data):
		p.prepareJSON(e, r, frame)
	case r != nil:
		r.redactPayload(e, nil, &p.edits, 0)
	}
	whole := len(p.edits.list) == 1 && p.edits.list[0].start == 0 && p.edits.list[0].end == len(e.Data) // nothing of it is written
	if p.form == formRaw && !whole && (!utf8.Valid(e.Data) || growsWhenQuoted(e.Data)) {
		p.form = formBase64
	}
	if len(p.edits.list) > 0 && p.form != formMessage {
		p.hidden.list = append(p.hidden.list[:0], "/raw")
		if p.form == formBase64 {
			p.hidden.list[0] = "/b64"
		}
		p.hidden.more = 0
	}
}

// growsWhenQuoted reports whether a large text takes more room as a string than a line should: control
// characters take six bytes each. In base64 it takes four thirds.
func growsWhenQuoted(text []byte) bool {
	if len(text) < 1<<20 {
		return false
	}
	size := 0
	for i := range text {
		switch c := text[i]; {
		case c < ' ':
			size += 6
		case c == '"' || c == '\\':
			size += 2
		case c == 0x7f, c == 0xE2: // perhaps a line separator
			size += 4
		default:
			size++
		}
	}
	return size > 2*len(text)
}

// looksJSON reports whether a text begins like a JSON object or array.
func looksJSON(text []byte) bool {
	text = bytes.TrimLeft(text, " \t\r\n")
	return len(text) > 0 && (text[0] == '{' || text[0] == '[')
}

// prepareJSON judges what should be JSON.
func (p *payload) prepareJSON(e *Event, r *Redactor, frame bool) {
	w := &p.walk
	w.r, w.e, w.hidden = r, &p.edits, &p.hidden
	err := w.walk(e.Data, 0)
	pos := w.s.Pos()
	w.data = nil
	w.s.Reset(nil, 0)
	switch {
	case err == nil && !e.Cut:
		if p.why = whyNotVerbatim(e.Data, w.dup); p.why == "" {
			p.form = formMessage
		}
		return
	case e.Cut:
		p.why = "cut"
	default:
		p.why = whyInvalid(e.Data, err)
	}
	if frame && p.why != "depth" && p.why != "cut" {
		p.kind = KindInvalid
	}
	if !frame {
		p.why = ""
	}
	if r != nil {
		r.redactPayload(e, err, &p.edits, pos)
	}
}

// prepareLine judges text that may be JSON, as logs are.
func (p *payload) prepareLine(e *Event, r *Redactor) {
	if r == nil {
		return
	}
	if !e.Cut && looksJSON(e.Data) {
		w := &p.walk
		w.r, w.e, w.hidden = r, &p.edits, nil
		if err := w.walk(e.Data, 0); err == nil {
			return
		}
		p.edits.reset()
	}
	r.redactPayload(e, nil, &p.edits, 0)
}

// whyNotVerbatim says why a valid JSON text cannot be copied into a line, or is read differently by different readers.
func whyNotVerbatim(text []byte, dup bool) string {
	switch {
	case dup:
		return "duplicate"
	case bytes.IndexByte(text, '\n') >= 0 || bytes.IndexByte(text, '\r') >= 0:
		return "newline"
	case text[0] == ' ' || text[0] == '\t' || text[len(text)-1] == ' ' || text[len(text)-1] == '\t':
		return "space"
	}
	return ""
}

func whyInvalid(text []byte, err error) string {
	syntax, ok := errors.AsType[*jsonwire.SyntaxError](err)
	switch {
	case len(bytes.TrimSpace(text)) == 0:
		return "empty"
	case !utf8.Valid(text):
		return "utf8"
	case ok && syntax.Depth:
		return "depth"
	}
	return "not-json"
}
