package capture

import (
	"fmt"
	"io"
	"strconv"
	"time"
	"unicode/utf8"

	"mcpwire/internal/jsonwire"
)

// Version is the version of the format that this package writes. It grows when a reader of the old one would be misled.
const Version = 1

// An Encoder writes events to a capture, one by one, as they are given: it keeps N and T. It is what conversions use; to record, use a [Writer]. It is for
// one goroutine at a time.
type Encoder struct {
	out sink
	red *Redactor // nil: off
	p   payload
	ev  Event // scratch
}

// NewEncoder returns an Encoder that writes to w, and hides what red says; nil is the usual, see [Redaction]. Nothing is written before the first event, which should be a head, and nothing is certain
// to be written before Flush.
func NewEncoder(w io.Writer, red *Redaction) *Encoder {
	return &Encoder{out: sink{w: w}, red: NewRedactor(red)}
}

// NewUnredactedEncoder is NewEncoder without redaction: what it writes is as secret as the traffic.
func NewUnredactedEncoder(w io.Writer) *Encoder { return &Encoder{out: sink{w: w}} }

// Encode writes an event. It does not keep e. The error is that of the writer, now or before.
func (c *Encoder) Encode(e *Event) error {
	c.ev = *e
	e = &c.ev
	c.p.prepare(e, c.red)
	if c.red != nil {
		c.red.redactFields(e, &c.p.hidden)
	}
	c.p.hidden.inherit(e, c.red)
	c.out.reserve(1 << 10)
	if e.Kind == KindHead && e.Head != nil {
		c.head(e.Head)
	} else {
		c.commonMembers(e)
		c.kindMembers(e)
	}
	c.payload(e)
	c.redacted()
	c.out.str("}\n")
	if len(c.out.buf) > sinkSize {
		c.out.flush()
	}
	c.ev = Event{}
	return c.out.err
}

// Flush hands everything to the writer.
func (c *Encoder) Flush() error {
	c.out.flush()
	return c.out.err
}

// quote writes a text that is not a payload. It may be anything: what is not UTF-8 becomes U+FFFD.
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

// seconds writes a time with nine digits, so that it is exact.
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
	frac := uint64(d%time.Second) + uint64(time.Second) // a 1 in front keeps the zeros
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
	c.member("transport", h.Transport)
	c.member("name", h.Name)
	c.member("url", h.URL)
	label := "off"
	if c.red != nil {
		label = c.red.label
	} else if h.Redact != "" {
		label = h.Redact // a copy of a capture that was redacted
	}
	c.member("redact", label)
}

// commonMembers writes what all events have.
func (c *Encoder) commonMembers(e *Event) {
	c.out.str(`{"n":`)
	c.out.buf = strconv.AppendUint(c.out.buf, e.N, 10)
	c.seconds("t", e.T)
	kind := e.Kind
	if c.p.kind == KindInvalid || c.p.kind == KindMessage {
		kind = c.p.kind
	}
	c.out.str(`,"k":`)
	c.quote(string(kind))
	if e.Dir != "" {
		c.out.str(`,"dir":`)
		c.quote(string(e.Dir))
	}
	if e.Side != "" {
		c.out.str(`,"side":`)
		c.quote(string(e.Side))
	}
	c.positive("s", e.Session)
	c.positive("x", e.Exchange)
}

// kindMembers writes what the kinds have besides.
func (c *Encoder) kindMembers(e *Event) {
	switch {
	case e.Request != nil:
		c.request(e.Request)
	case e.Response != nil:
		c.out.str(`,"res":{"status":`)
		c.out.buf = strconv.AppendInt(c.out.buf, int64(e.Response.Status), 10)
		c.member("proto", e.Response.Proto)
		c.headers(e.Response.Headers)
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
		c.member("why", e.Gap.Why)
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
	c.headers(r.Headers)
	c.out.str("}")
}

// headers writes names with their values. A value that is not UTF-8 comes in base64 besides.
func (c *Encoder) headers(list []Header) {
	c.out.str(`,"headers":[`)
	for i, h := range list {
		if i > 0 {
			c.out.str(",")
		}
		c.out.str("[")
		c.quote(h.Name)
		c.out.str(",")
		c.quote(h.Value)
		if !utf8.ValidString(h.Value) {
			c.out.str(`,"`)
			c.out.base64(func(put func([]byte)) { put([]byte(h.Value)) })
			c.out.str(`"`)
		}
		c.out.str("]")
	}
	c.out.str("]")
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

// payload writes Data, with the framing that was around it.
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
	c.member("why", c.p.why)
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

// redacted lists what was hidden.
func (c *Encoder) redacted() {
	h := &c.p.hidden
	if len(h.list) > 0 {
		c.list("red", h.list)
	}
	if h.more > 0 {
		c.number("redmore", int64(h.more))
	}
}

// gapEvent makes the event that stands for lost ones.
func gapEvent(n uint64, t time.Duration, g Gap) *Event {
	return &Event{Kind: KindGap, N: n, T: t, Gap: &g}
}

func writeError(err error) error { return fmt.Errorf("writing the capture: %w", err) }
