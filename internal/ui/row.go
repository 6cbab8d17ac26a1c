package web

import (
	"strconv"
	"time"

	"mcpwire/internal/jsonwire"
	"mcpwire/internal/wireview"
)

// appendRow appends a row as JSON; the package comment says what is in it. It is called for each row of a timeline that may have 100,000, with the model locked: hence no
// encoding/json. The model must be locked.
func appendRow(dst []byte, r *trace.Row) []byte {
	o := jsonObject(append(dst, `{"q":`...))
	o = strconv.AppendUint(o, r.Seq, 10)
	o = append(o, `,"at":`...)
	o = appendMillis(o, time.Duration(r.At.UnixNano()))
	o.text("k", string(r.Kind))
	o.text("c", r.Capture.ID)
	if r.Parent != nil {
		o.number("p", int64(r.Parent.Seq))
	}
	o.number("n", int64(r.N))
	o.number("rn", int64(r.ResponseN))
	if len(r.Events) > 1 || len(r.Events) == 1 && r.Events[0] != r.N {
		o.numbers("ev", r.Events)
	}
	o.number("s", int64(r.Session.Number))
	o.text("srv", r.Session.Label())
	o.text("sd", string(r.Session.Side))
	o.others(r)
	o.millis("t", r.T)
	o.text("d", string(r.Dir))
	o.text("m", r.Method)
	o.text("tg", r.Target)
	o.text("id", r.ID)
	o.text("st", string(r.Status))
	o.number("cd", int64(r.Code))
	o.text("msg", r.Message)
	o.number("rq", r.RequestBytes)
	o.number("rs", r.ResponseBytes)
	o.times(r)
	o.flag("done", r.Done)
	o.text("sum", trace.Summary(r))
	o.text("g", trace.Glyph(r))
	o.text("role", string(r.Role))
	o.text("era", r.Era())
	o.text("rev", r.EffectiveRevision())
	o.links(r)
	o.findings(r)
	o.number("more", int64(r.EvictedChildren))
	o.text("x", r.Excerpt)
	return append(o, '}')
}

// An object is an object in JSON that is being written: members that are empty are left out.
type jsonObject []byte

func (o *jsonObject) name(name string) {
	if b := *o; len(b) > 0 && b[len(b)-1] != '{' {
		*o = append(*o, ',')
	}
	*o = append(*o, '"')
	*o = append(*o, name...)
	*o = append(*o, '"', ':')
}

func (o *jsonObject) text(name, value string) {
	if value != "" {
		o.name(name)
		*o = jsonwire.AppendQuote(*o, value)
	}
}

func (o *jsonObject) number(name string, value int64) {
	if value != 0 {
		o.name(name)
		*o = strconv.AppendInt(*o, value, 10)
	}
}

func (o *jsonObject) numbers(name string, values []uint64) {
	o.name(name)
	*o = append(*o, '[')
	for i, v := range values {
		if i > 0 {
			*o = append(*o, ',')
		}
		*o = strconv.AppendUint(*o, v, 10)
	}
	*o = append(*o, ']')
}

func (o *jsonObject) flag(name string, value bool) {
	if value {
		o.name(name)
		*o = append(*o, "true"...)
	}
}

func (o *jsonObject) millis(name string, d time.Duration) {
	o.name(name)
	*o = appendMillis(*o, d)
}

// appendMillis appends a duration in milliseconds, to the microsecond.
func appendMillis(dst []byte, d time.Duration) []byte {
	us := d.Microseconds()
	if us < 0 {
		dst, us = append(dst, '-'), -us
	}
	dst = strconv.AppendInt(dst, us/1000, 10)
	if us %= 1000; us == 0 {
		return dst
	}
	dst = append(dst, '.', byte('0'+us/100), byte('0'+us/10%10), byte('0'+us%10))
	for dst[len(dst)-1] == '0' {
		dst = dst[:len(dst)-1]
	}
	return dst
}

// times appends how long it took.
func (o *jsonObject) times(r *trace.Row) {
	if _, known := r.Elapsed(); !known {
		return
	}
	wall := r.Wall()
	o.millis("l", wall)
	if r.Latency != wall {
		o.millis("la", r.Latency)
	}
	if r.Kind == trace.Request && r.Role != trace.ServerRequest {
		o.millis("sv", r.ServerTime())
	}
	human := r.ClientTime
	if r.InputRounds != nil {
		human = r.InputRounds.ClientTime
	}
	if human > 0 {
		o.millis("hu", human)
		o.waits(r)
	}
}

// maxWaits is how many times the server may have waited for the client so that the page is told when.
const maxWaits = 16

// waits appends when the server waited for the client.
func (o *jsonObject) waits(r *trace.Row) {
	var room [maxWaits]trace.Segment
	n := 0
	for _, sp := range r.AppendSegments(room[:0]) {
		if sp.Kind != trace.SegmentClient || n == maxWaits {
			continue
		}
		if n++; n == 1 {
			o.name("ws")
			*o = append(*o, '[')
		} else {
			*o = append(*o, ',')
		}
		*o = appendMillis(append(*o, '['), sp.From-r.T)
		*o = append(appendMillis(append(*o, ','), sp.To-r.T), ']')
	}
	if n > 0 {
		*o = append(*o, ']')
	}
}

// links appends what the row has of HTTP, of rounds, and of a task.
func (o *jsonObject) links(r *trace.Row) {
	if h := r.HTTP; h != nil {
		o.number("http", int64(h.Status))
		o.flag("stream", h.Stream)
		o.flag("ended", h.Ended)
		o.number("nev", int64(h.Events))
	}
	if r.InputRounds != nil {
		o.number("rounds", int64(r.InputRounds.Count))
	}
	if r.Task != nil {
		o.text("task", r.Task.State)
	}
}

// findings appends how many findings there are, by how bad they are.
func (o *jsonObject) findings(r *trace.Row) {
	var errors, warnings, others uint64
	for row := range r.All() {
		for i := range row.Findings {
			switch row.Findings[i].Severity {
			case "error":
				errors++
			case "warning":
				warnings++
			default:
				others++
			}
		}
	}
	if errors+warnings+others > 0 {
		o.numbers("lint", []uint64{errors, warnings, others})
	}
}

// others appends the rows of a bridge's other side.
func (o *jsonObject) others(r *trace.Row) {
	if !r.Capture.HasSides() {
		return
	}
	var list []uint64
	for _, x := range r.Counterparts() {
		list = append(list, x.Seq)
	}
	if len(list) > 0 {
		o.numbers("o", list)
	}
}
