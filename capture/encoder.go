package capture

import (
	"bytes"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"mcpwire/internal/json/jsonwire"
)

// Version is the version of the format that this package writes. It grows when a change would
// mislead an older reader.
const Version = 1

// An Encoder writes events to a capture one by one and keeps their N and T. It serves conversions;
// use a [Writer] to record. It is not safe for concurrent use.
type Encoder struct {
	out sink
	// red is nil if redaction is off.
	red *Redactor
	p   payload
	// ev and text are scratch space.
	ev   Event
	text []byte
}

// NewEncoder returns an Encoder that writes to w and hides what red says. A nil red means the
// default, see [Redaction]. The first event should be a head. The Encoder buffers; call Flush at
// the end.
func NewEncoder(w io.Writer, red *Redaction) *Encoder {
	c := &Encoder{out: sink{w: w}}
	if red == nil || !red.Off {
		c.red = NewRedactor(red)
	}
	return c
}

// Encode writes an event. It does not keep e. It returns the first error of the underlying writer.
func (c *Encoder) Encode(e *Event) error {
	c.ev = *e
	err := c.encode(&c.ev)
	c.ev = Event{}
	return err
}

// encode is Encode for an event that it may change.
func (c *Encoder) encode(e *Event) error {
	c.p.prepare(e, c.red)
	if c.red != nil {
		c.red.redactFields(e, &c.p.hidden)
	}
	c.out.reserve(1 << 10)
	if e.Kind == KindHead && e.Head != nil {
		c.head(e.Head)
	} else {
		c.commonMembers(e)
		c.kindMembers(e)
	}
	c.payload(e)
	c.p.hidden.inherit(e, c.red)
	c.redacted()
	c.out.str("}\n")
	if len(c.out.buf) > sinkSize {
		c.out.flush()
	}
	return c.out.err
}

// Flush writes all buffered data to the underlying writer.
func (c *Encoder) Flush() error {
	c.out.flush()
	return c.out.err
}

// quote writes a text that is not a payload. Invalid UTF-8 becomes U+FFFD.
func (c *Encoder) quote(s string) {
	c.out.reserve(len(s) + 2)
	c.out.buf = jsonwire.AppendQuote(c.out.buf, s)
}

func (c *Encoder) member(name, value string) {
	if value != "" {
		c.out.str(`,"` + name + `":`)
		c.quote(value)
	}
}

func (c *Encoder) number(name string, n int64) {
	c.out.str(`,"`)
	c.out.str(name)
	c.out.str(`":`)
	c.out.buf = strconv.AppendInt(c.out.buf, n, 10)
}

func (c *Encoder) positive(name string, n uint64) {
	if n > 0 {
		c.out.str(`,"`)
		c.out.str(name)
		c.out.str(`":`)
		c.out.buf = strconv.AppendUint(c.out.buf, n, 10)
	}
}

// seconds writes a duration in seconds with nine decimals, so that it is exact.
func (c *Encoder) seconds(name string, d time.Duration) {
	c.out.str(`,"`)
	c.out.str(name)
	c.out.str(`":`)
	c.out.buf = appendSeconds(c.out.buf, d)
}

func appendSeconds(dst []byte, d time.Duration) []byte {
	if d < 0 {
		d = 0
	}
	dst = strconv.AppendInt(dst, int64(d/time.Second), 10)
	frac := uint64(d%time.Second) + uint64(time.Second) // the leading 1 keeps the zeros
	n := len(dst)
	dst = strconv.AppendUint(dst, frac, 10)
	dst[n] = '.'
	return dst
}

func (c *Encoder) head(h *Head) {
	c.out.str(`{"k":"head"`)
	c.number("v", int64(h.Version))
	c.member("id", h.ID)
	c.member("at", h.At.UTC().Format(time.RFC3339Nano))
	c.member("tool", h.Tool)
	c.member("transport", string(h.Transport))
	c.member("name", h.Name)
	c.member("url", h.URL)
	label := RedactionOff
	if c.red != nil {
		label = c.red.label
	} else if h.Redact != "" {
		label = h.Redact // a copy of a redacted capture
	}
	c.member("redact", string(label))
}

// commonMembers writes the members that all events have.
func (c *Encoder) commonMembers(e *Event) {
	kind := e.Kind
	if c.p.kind == KindInvalid || c.p.kind == KindMessage {
		kind = c.p.kind
	}
	c.out.reserve(len(kind) + len(e.Dir) + len(e.Side))
	b := append(c.out.buf, `{"n":`...)
	b = strconv.AppendUint(b, e.N, 10)
	b = append(b, `,"t":`...)
	b = appendSeconds(b, e.T)
	b = append(b, `,"k":`...)
	b = jsonwire.AppendQuote(b, string(kind))
	if e.Dir != "" {
		b = append(b, `,"dir":`...)
		b = jsonwire.AppendQuote(b, string(e.Dir))
	}
	if e.Side != "" {
		b = append(b, `,"side":`...)
		b = jsonwire.AppendQuote(b, string(e.Side))
	}
	c.out.buf = b
	c.positive("s", e.Session)
	c.positive("x", e.Exchange)
}

// kindMembers writes the members that depend on the kind.
func (c *Encoder) kindMembers(e *Event) {
	switch {
	case e.Request != nil:
		c.request(e.Request)
	case e.Response != nil:
		c.out.str(`,"res":{"status":`)
		c.out.buf = strconv.AppendInt(c.out.buf, int64(e.Response.Status), 10)
		c.member("proto", e.Response.Proto)
		c.headers(e.Response.Headers, "/res/headers/")
		c.out.str("}")
	case e.Start != nil:
		c.list("cmd", e.Start.Command)
		c.member("cwd", e.Start.Dir)
		c.list("env", e.Start.Env)
		c.number("pid", int64(e.Start.PID))
	case e.Exit != nil:
		c.number("code", int64(e.Exit.Code))
		c.member("signal", e.Exit.Signal)
	case e.Gap != nil:
		c.number("lost", int64(e.Gap.Lost))
		c.number("bytes", e.Gap.Bytes)
		c.seconds("until", e.Gap.Until)
		c.member("why", string(e.Gap.Why))
	case e.Translation != nil:
		c.number("of", int64(e.Translation.Of))
		c.out.str(`,"to":[`)
		for i, n := range e.Translation.To {
			if i > 0 {
				c.out.str(",")
			}
			c.out.reserve(20)
			c.out.buf = strconv.AppendUint(c.out.buf, n, 10)
		}
		c.out.str("]")
		c.member("rule", e.Translation.Rule)
	case e.Tail != nil:
		c.number("events", int64(e.Tail.Events))
		c.number("lost", int64(e.Tail.Lost))
	}
	if e.SSE != nil {
		c.sse(e.SSE)
	}
}

func (c *Encoder) request(r *Request) {
	c.out.str(`,"req":{"method":`)
	c.quote(r.Method)
	c.member("url", r.URL)
	c.member("proto", r.Proto)
	c.member("remote", r.Remote)
	c.headers(r.Headers, "/req/headers/")
	c.out.str("}")
}

// headers writes names with their values, redacted. at is the pointer to the list in the line, with
// a slash.
func (c *Encoder) headers(list []Header, at string) {
	c.out.str(`,"headers":[`)
	for i, h := range list {
		if i > 0 {
			c.out.str(",")
		}
		if c.red == nil {
			c.header(h)
			continue
		}
		c.header(c.red.redactHeader(h, at, i, &c.p.hidden))
	}
	c.out.str("]")
}

// header writes a name with its value, and base64 for a value that is not UTF-8.
func (c *Encoder) header(h Header) {
	b := append(c.text[:0], '[')
	b = jsonwire.AppendQuote(b, h.Name)
	b = append(b, ',')
	b = jsonwire.AppendQuote(b, h.Value)
	if !utf8.ValidString(h.Value) {
		b = append(b, `,"`...)
		b = base64.StdEncoding.AppendEncode(b, []byte(h.Value))
		b = append(b, '"')
	}
	b = append(b, ']')
	c.out.put(b)
	if c.text = b; cap(b) > sinkSize {
		c.text = nil
	}
}

func (c *Encoder) list(name string, list []string) {
	c.out.str(`,"` + name + `":[`)
	for i, s := range list {
		if i > 0 {
			c.out.str(",")
		}
		c.quote(s)
	}
	c.out.str("]")
}

func (c *Encoder) sse(s *SSE) {
	c.out.str(`,"sse":{"event":`)
	c.quote(s.Event)
	text := func(name, value string, has bool) {
		if has {
			c.out.str(`,"` + name + `":`)
			c.quote(value)
		}
	}
	text("id", s.ID, s.HasID)
	if s.HasRetry {
		c.number("retry", s.Retry.Milliseconds())
	}
	text("comment", s.Comment, s.HasComment)
	c.out.str("}")
}

// payload writes Data and its framing.
func (c *Encoder) payload(e *Event) {
	if e.Framing != "" {
		c.out.str(`,"frame":`)
		c.quote(string(e.Framing))
	}
	c.member("pre", e.Prefix)
	c.member("enc", e.Encoding)
	if e.Part > 0 {
		c.number("part", int64(e.Part))
	}
	if c.p.form == formNone {
		return
	}
	c.number("len", e.wireLen())
	c.member("why", string(c.p.why))
	if e.Cut {
		c.out.str(`,"cut":true`)
	}
	each := func(put func([]byte)) { c.p.edits.apply(e.Data, put) }
	switch c.p.form {
	case formMessage:
		c.out.str(`,"msg":`)
		each(c.out.put)
	case formRaw:
		c.out.str(`,"raw":"`)
		each(c.out.quoted)
		c.out.str(`"`)
	case formBase64:
		c.out.str(`,"b64":"`)
		c.out.base64(each)
		c.out.str(`"`)
	}
}

// redacted writes the list of hidden values.
func (c *Encoder) redacted() {
	h := &c.p.hidden
	if len(h.list) > 0 {
		c.list("red", h.list)
	}
	if h.more > 0 {
		c.number("redmore", int64(h.more))
	}
}

// gapEvent returns the event that stands for lost ones.
func gapEvent(n uint64, t time.Duration, g Gap) *Event {
	return &Event{Kind: KindGap, N: n, T: t, Gap: &g}
}

func writeError(err error) error { return fmt.Errorf("write the capture: %w", err) }

// A form is the way a line stores a payload.
type form uint8

const (
	formNone    form = iota
	formMessage      // one JSON text in the member msg
	formRaw          // a string
	formBase64       // a string of base64
)

// A payload decides how Event.Data is written.
type payload struct {
	form   form
	kind   Kind
	why    RawReason
	edits  edits
	hidden pointers
	walk   walker
	raw    bool
}

// prepare decides how to write the payload of e and which parts to hide. A nil r hides nothing.
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
	case r != nil && (e.Part > 0 || e.Encoding != "" && strings.ToLower(e.Encoding) != "identity"):
		// Neither half a secret nor a compressed one can be recognized.
		r.redactAll(&p.edits, e.Data, "part")
	case e.Kind == KindStderr || e.Kind == KindNote || e.Kind == KindEnd:
		p.prepareLine(e, r)
	case frame || looksJSON(e.Data):
		p.prepareJSON(e, r, frame)
	case r != nil:
		r.redactPayload(e, nil, &p.edits, 0)
	}
	// whole reports that one edit replaces the entire payload.
	whole := len(p.edits.list) == 1 && p.edits.list[0].start == 0 && p.edits.list[0].end == len(e.Data)
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

// growsWhenQuoted reports whether a large text would grow more as a string than as base64. Control
// characters take six bytes each in a string; base64 takes four thirds of the size.
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
		case c == 0x7f, c == 0xE2: // may be a line separator
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

// prepareJSON handles a payload that should be JSON.
func (p *payload) prepareJSON(e *Event, r *Redactor, frame bool) {
	var err error
	pos, unsure := 0, true // of the error; about duplicate names
	if r == nil {
		err = jsonwire.Valid(e.Data, 0)
	} else {
		w := &p.walk
		w.r, w.e, w.hidden = r, &p.edits, &p.hidden
		err = w.walk(e.Data)
		pos, unsure = w.s.Pos(), w.unsure
		w.data = nil
		w.s.Reset(nil, 0)
	}
	switch {
	case err == nil && !e.Cut:
		if p.why = whyNotVerbatim(e.Data, unsure); p.why == "" {
			p.form = formMessage
		}
		return
	case e.Cut:
		p.why = rawCut
	default:
		p.why = whyInvalid(e.Data, err)
	}
	if frame && p.why != rawDepth && p.why != rawCut {
		p.kind = KindInvalid
	}
	if !frame {
		p.why = ""
	}
	if r != nil {
		r.redactPayload(e, err, &p.edits, pos)
	}
}

// prepareLine handles text that may be JSON, such as logs.
func (p *payload) prepareLine(e *Event, r *Redactor) {
	if r == nil {
		return
	}
	if !e.Cut && looksJSON(e.Data) {
		w := &p.walk
		w.r, w.e, w.hidden = r, &p.edits, nil
		if err := w.walk(e.Data); err == nil {
			return
		}
		p.edits.reset()
	}
	r.redactPayload(e, nil, &p.edits, 0)
}

// whyNotVerbatim says why a line cannot hold a valid JSON text verbatim, or why readers may
// disagree on the text. It returns "" if neither applies.
func whyNotVerbatim(text []byte, unsure bool) RawReason {
	if unsure {
		if _, dup := jsonwire.Duplicate(text, 0); dup {
			return RawDuplicate
		}
	}
	switch {
	case bytes.IndexByte(text, '\n') >= 0 || bytes.IndexByte(text, '\r') >= 0:
		return RawNewline
	case text[0] == ' ' || text[0] == '\t' || text[len(text)-1] == ' ' || text[len(text)-1] == '\t':
		return rawSpace
	}
	return ""
}

func whyInvalid(text []byte, err error) RawReason {
	syntax, ok := errors.AsType[*jsonwire.SyntaxError](err)
	switch {
	case len(bytes.TrimSpace(text)) == 0:
		return rawEmpty
	case !utf8.Valid(text):
		return rawUTF8
	case ok && syntax.Depth:
		return rawDepth
	}
	return rawNotJSON
}

// A sink buffers output. Its buffer stays small: it passes long runs to the writer directly, so
// that a large frame is not copied again.
type sink struct {
	w   io.Writer
	buf []byte
	// err is the first error of w. After it, nothing is written until the Writer clears it.
	err error
}

const (
	sinkSize  = 64 << 10
	quoteSize = 16 << 10 // payload bytes quoted at once
)

// flush writes the buffer to the underlying writer.
func (s *sink) flush() {
	if s.err == nil && len(s.buf) > 0 {
		_, s.err = s.w.Write(s.buf)
	}
	s.buf = s.buf[:0]
}

// reserve makes room for n bytes.
func (s *sink) reserve(n int) {
	if len(s.buf)+n > sinkSize {
		s.flush()
	}
}

func (s *sink) str(text string) { s.buf = append(s.buf, text...) }

// put writes bytes verbatim.
func (s *sink) put(p []byte) {
	if len(p) < sinkSize/2 {
		s.reserve(len(p))
		s.buf = append(s.buf, p...)
		return
	}
	s.flush()
	if s.err == nil {
		_, s.err = s.w.Write(p)
	}
}

// quoted writes the inside of a JSON string. p must be valid UTF-8.
func (s *sink) quoted(p []byte) {
	for len(p) > 0 {
		n := min(len(p), quoteSize)
		for n < len(p) && !utf8.RuneStart(p[n]) {
			n--
		}
		s.reserve(n + 2)
		start := len(s.buf)
		s.buf = jsonwire.AppendQuote(s.buf, p[:n])
		s.buf = s.buf[:start+copy(s.buf[start:], s.buf[start+1:len(s.buf)-1])]
		p = p[n:]
	}
}

// base64 writes the pieces from each, encoded as one text.
func (s *sink) base64(each func(put func([]byte))) {
	enc := base64.NewEncoder(base64.StdEncoding, sinkWriter{s})
	each(func(p []byte) { enc.Write(p) })
	enc.Close()
}

type sinkWriter struct{ s *sink }

func (w sinkWriter) Write(p []byte) (int, error) {
	w.s.put(p)
	return len(p), nil
}
