package check

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"mcpwire/capture"
	"mcpwire/internal/era"
	"mcpwire/internal/era/shape"
	"mcpwire/internal/text/printable"
	"mcpwire/mcp"
)

// A Finding is a place where a rule was broken. What peers wrote is in it clipped, quoted and without control characters.
type Finding struct {
	Rule     *Rule        // shared, must not be changed; its URL is of the revision of the finding
	Capture  string       // the id in the capture's head
	Event    uint64       // number of the event in the capture
	Dir      capture.Dir  // which way what is wrong went
	Session  uint64       // as in the capture
	Exchange uint64       // as in the capture
	ID       string       // of the message: JSON text, clipped; "" if it has none
	Method   string       // of the message, or of the request that it answers; clipped
	Revision mcp.Revision // that the message was held against; RevisionNone if that is not known
	Pointer  string       // JSON pointer into the message, "" for all of it or none
	Message  string       // what was seen, and what is due
	Related  []uint64     // numbers of other events that have to do with it
	// SDK is the library whose code breaks the rule, in all servers built with it. "" is the server's
	// own code, or not known.
	SDK string
}

const (
	maxShown   = 80  // bytes of a peer's text in a finding
	maxText    = 500 // bytes of the message of a finding
	maxRelated = 8
)

// show returns text of a peer for people: quoted, clipped, nothing in it that a terminal acts on.
func show[T ~string | ~[]byte](text T) string {
	s := string(text[:min(len(text), maxShown+utf8.UTFMax)])
	cut := len(text) > maxShown
	if cut {
		s = clipBytes(s, maxShown)
	}
	s = strconv.QuoteToGraphic(s)
	if cut {
		s += fmt.Sprintf("… (%d bytes)", len(text))
	}
	return printable.Line(s)
}

// showJSON returns JSON text of a peer for people. It is not quoted again.
func showJSON(text []byte) string {
	s := string(text)
	if len(s) > maxShown {
		s = clipBytes(s, maxShown) + "…"
	}
	return printable.Line(s)
}

// clipBytes returns at most n bytes of s, and no half character at the end.
func clipBytes(s string, n int) string {
	if len(s) <= n {
		return s
	}
	for n > 0 && !utf8.RuneStart(s[n]) {
		n--
	}
	return s[:n]
}

// A view is what a rule looks at: an event, the message in it if there is one, and their context as it was before them. It is good until the rule returns, but for the
// session, the call and the exchange.
type view struct {
	checker *Checker
	rule    *rule

	e        *capture.Event
	session  *session
	exchange *exchange // nil unless the event belongs to one
	msg      *message  // nil if the event has none
	// call is the request itself, or what a response answers; nil if that is not known.
	call *call
	// rev is the revision that the message is held against, RevisionNone if it is not known. modern tells that it is one of the modern era, known or not.
	rev    mcp.Revision
	modern bool

	shapeFindings []shape.Finding // see shapeMismatches
	shapeChecked  bool

	invalid      invalidLines // see bad
	invalidKnown bool

	root     string // place of the message in the event's line: /msg, /msg/3 or /raw
	findings []Finding
}

// features returns the features of the revision in force.
func (v *view) features() *era.Features { return era.Of(v.rev) }

// toServer and toClient tell which way the message goes.
func (v *view) toServer() bool { return v.e.Dir == capture.ToServer }
func (v *view) toClient() bool { return v.e.Dir == capture.ToClient }

// param follows a path of names from the message's params, result from its result, meta from the _meta in either. They return nil for what is absent.
func (v *view) param(path ...string) []byte  { return valueAt(v.msg.params, path...) }
func (v *view) result(path ...string) []byte { return valueAt(v.msg.result, path...) }
func (v *view) meta(key string) []byte {
	if v.msg.is(kindResult) {
		return valueAt(v.msg.result, "_meta", key)
	}
	return valueAt(v.msg.params, "_meta", key)
}

// isResultOf reports whether the message is a result of one of the methods, of those that clients call.
func (v *view) isResultOf(methods ...string) bool {
	return v.call != nil && v.msg.is(kindResult) && v.call.dir == capture.ToServer && slices.Contains(methods, v.call.method)
}

// complete reports whether the message is a result that is final: in the modern era there are others.
func (v *view) complete() bool {
	t := v.result("resultType")
	return v.msg.is(kindResult) && isObject(v.msg.result) && (t == nil || !v.modern || stringValue(t) == mcp.ResultTypeComplete)
}

// redacted reports whether a place in the message is redacted, or within what is: nothing can be said of its value. Pointers are into the message, such as /params/uri.
func (v *view) redacted(place string) bool {
	return v.e.RedactedMore > 0 || v.root == "" && len(v.e.Redacted) > 0 || covers(v.e.Redacted, v.root+place)
}

// redactedWithin is hidden for what is judged with all that is in it: it is true as well if anything below the place is redacted.
func (v *view) redactedWithin(place string) bool {
	return v.e.RedactedMore > 0 || v.root == "" && len(v.e.Redacted) > 0 || overlaps(v.e.Redacted, v.root+place)
}

// redactedPlaces returns the redacted places as pointers into the message.
func (v *view) redactedPlaces() []string {
	var places []string
	for _, p := range v.e.Redacted {
		if rest, ok := strings.CutPrefix(p, v.root); ok && len(places) < 64 {
			places = append(places, rest)
		}
	}
	return places
}

// report makes a finding of the place in the message that a JSON pointer names, "" being all of it. It makes none if the place is redacted. What comes from a peer must go
// through show or showJSON.
func (v *view) report(place, format string, args ...any) *Finding {
	if v.msg != nil && v.redacted(place) {
		return &Finding{}
	}
	return v.add(place, fmt.Sprintf(format, args...))
}

// reportHead makes a finding of a header field; an empty one is the head as a whole.
func (v *view) reportHead(f field, format string, args ...any) *Finding {
	if f.redacted {
		return &Finding{}
	}
	found := v.add("", fmt.Sprintf(format, args...))
	return found
}

func (v *view) add(place, message string) *Finding {
	f := Finding{
		Rule: v.rule.inRevision(v.rev), Capture: v.e.Capture, Event: v.e.N, Dir: v.e.Dir, Session: v.e.Session, Exchange: v.e.Exchange,
		Revision: v.rev, Pointer: printable.Line(clipBytes(place, maxText)), Message: printable.Line(clipBytes(message, maxText)),
	}
	if v.msg != nil {
		f.ID = printable.Line(clipBytes(string(v.msg.id), maxShown))
		f.Method = printable.Line(clipBytes(v.msg.method, maxShown))
	}
	if v.call != nil && f.Method == "" {
		f.Method = printable.Line(clipBytes(v.call.method, maxShown))
	}
	v.findings = append(v.findings, f)
	return &v.findings[len(v.findings)-1]
}

// with adds the number of another event that has to do with the finding; 0 is none.
func (f *Finding) with(n uint64) *Finding {
	if n != 0 && n != f.Event && len(f.Related) < maxRelated && !slices.Contains(f.Related, n) {
		f.Related = append(f.Related, n)
	}
	return f
}

// aboutCall moves a finding to an earlier request: it is about what never came.
func (f *Finding) aboutCall(c *call) *Finding {
	f.Event, f.Dir, f.Exchange, f.Revision = c.n, c.dir, 0, c.rev
	f.Rule = f.Rule.In(c.rev)
	if c.exchange != nil {
		f.Exchange = c.exchange.number
	}
	f.ID, f.Method = printable.Line(clipBytes(string(c.id), maxShown)), printable.Line(clipBytes(c.method, maxShown))
	return f
}
