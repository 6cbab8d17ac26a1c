package check

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"mcpwire/capture"
	"mcpwire/internal/era"
	"mcpwire/internal/era/shape"
	"mcpwire/internal/json/jsonwire"
	"mcpwire/internal/text/clip"
	"mcpwire/internal/text/printable"
	"mcpwire/mcp"
)

// A Finding is one violation of a rule. Text of peers in it is truncated, quoted and free of
// control characters.
type Finding struct {
	// Rule is the broken rule, with the URL for Revision. It is shared and must not be modified.
	Rule *Rule
	// Capture is the id in the capture's head.
	Capture string
	// Event is the number of the event in the capture.
	Event uint64
	// Dir is the direction of the offending message or bytes.
	Dir capture.Dir
	// Session is the session number in the capture.
	Session uint64
	// Exchange is the HTTP exchange number in the capture.
	Exchange uint64
	// ID is the message's id as JSON text, truncated. It is "" if the message has none.
	ID string
	// Method is the method of the message, or of the request that it answers. It is truncated.
	Method string
	// Revision is the revision that the message was checked against, or RevisionNone if unknown.
	Revision mcp.Revision
	// Pointer is a JSON pointer into the message. "" means the whole message, or no message.
	Pointer string
	// Message says what was seen and what is required.
	Message string
	// Related lists the numbers of other events involved.
	Related []uint64
	// SDK names the library that breaks the rule in all servers built with it. It is "" if the
	// server's own code does, or if unknown.
	SDK string
}

const (
	maxShown   = 80  // bytes of a peer's text
	maxText    = 500 // bytes of Finding.Message
	maxRelated = 8
)

// show quotes and truncates a peer's text for display, and escapes what a terminal would act on.
func show[T ~string | ~[]byte](text T) string {
	s := strconv.QuoteToGraphic(string(clip.Prefix(text, maxShown)))
	if len(text) > maxShown {
		s += fmt.Sprintf("… (%d bytes)", len(text))
	}
	return printable.Line(s)
}

// showJSON truncates and escapes a peer's JSON text for display, without quoting it.
func showJSON(text []byte) string {
	return printable.Line(clip.String(text, maxShown))
}

// A view is the input of a rule: an event, its message if any, and the context before it. It is
// valid until the rule returns; its session, call and exchange live longer.
type view struct {
	checker *Checker
	rule    *rule

	e       *capture.Event
	session *session
	// exchange is nil unless the event belongs to one.
	exchange *exchange
	// msg is nil if the event has no message.
	msg *message
	// call is the request itself, or the request that a response answers. It is nil if unknown.
	call *call
	// rev is the revision to check the message against, or RevisionNone if unknown. modern reports
	// a modern message, even if its revision is unknown.
	rev    mcp.Revision
	modern bool

	// shapeFindings is set by shapeMismatches.
	shapeFindings []shape.Finding
	shapeChecked  bool

	// invalid is set by invalidLines.
	invalid      invalidLines
	invalidKnown bool

	// root is the JSON pointer to the message in the event: /msg, /msg/3, or "" if unknown.
	root     string
	findings []Finding
}

// features returns the features of the revision in force.
func (v *view) features() *era.Features { return era.Of(v.rev) }

// toServer and toClient report the direction of the message.
func (v *view) toServer() bool { return v.e.Dir == capture.ToServer }
func (v *view) toClient() bool { return v.e.Dir == capture.ToClient }

// param, result and meta return the value at a path of names in the message's params, its result,
// and the _meta of either. They return nil if it is absent.
func (v *view) param(path ...string) []byte {
	return jsonwire.Lookup(v.checker.params.member(v.msg.params, path[0]), path[1:]...)
}

func (v *view) result(path ...string) []byte {
	return jsonwire.Lookup(v.checker.result.member(v.msg.result, path[0]), path[1:]...)
}

func (v *view) meta(key string) []byte {
	if v.msg.is(kindResult) {
		return v.checker.meta.member(v.result("_meta"), key)
	}
	return v.checker.meta.member(v.param("_meta"), key)
}

// isResultOf reports whether the message is a result of one of the methods, called by the client.
func (v *view) isResultOf(methods ...string) bool {
	return v.call != nil && v.msg.is(kindResult) && v.call.dir == capture.ToServer && slices.Contains(methods, v.call.method)
}

// complete reports whether the message is a final result. Modern results may have other types.
func (v *view) complete() bool {
	t := v.result("resultType")
	return v.msg.is(kindResult) && isObject(v.msg.result) && (t == nil || !v.modern || jsonwire.Text(t) == string(mcp.ResultTypeComplete))
}

// redacted reports whether a place in the message is redacted or lies in a redacted value, so that
// its value is unknown. place is a JSON pointer into the message, such as /params/uri.
func (v *view) redacted(place string) bool {
	return v.e.RedactedMore > 0 || v.root == "" && len(v.e.Redacted) > 0 || covers(v.e.Redacted, v.root+place)
}

// redactedWithin is like redacted, but also reports true if anything below the place is redacted.
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

// report adds a finding about the place in the message that a JSON pointer names; "" is the whole
// message. It adds none if the place is redacted. Pass a peer's text through show or showJSON.
func (v *view) report(place, format string, args ...any) *Finding {
	if v.msg != nil && v.redacted(place) {
		return &Finding{}
	}
	return v.add(place, fmt.Sprintf(format, args...))
}

// reportHead adds a finding about a header field, or about the whole head if f is the zero field.
func (v *view) reportHead(f field, format string, args ...any) *Finding {
	if f.redacted {
		return &Finding{}
	}
	return v.add("", fmt.Sprintf(format, args...))
}

func (v *view) add(place, message string) *Finding {
	f := Finding{
		Rule: v.rule.inRevision(v.rev), Capture: v.e.Capture, Event: v.e.N, Dir: v.e.Dir, Session: v.e.Session, Exchange: v.e.Exchange,
		Revision: v.rev, Pointer: printable.Line(clip.Prefix(place, maxText)), Message: printable.Line(clip.Prefix(message, maxText)),
	}
	if v.msg != nil {
		f.ID = printable.Line(clip.Prefix(string(v.msg.id), maxShown))
		f.Method = printable.Line(clip.Prefix(v.msg.method, maxShown))
	}
	if v.call != nil && f.Method == "" {
		f.Method = printable.Line(clip.Prefix(v.call.method, maxShown))
	}
	v.findings = append(v.findings, f)
	return &v.findings[len(v.findings)-1]
}

// with adds the number of a related event. It ignores 0.
func (f *Finding) with(n uint64) *Finding {
	if n != 0 && n != f.Event && len(f.Related) < maxRelated && !slices.Contains(f.Related, n) {
		f.Related = append(f.Related, n)
	}
	return f
}

// aboutCall moves a finding to an earlier request, whose expected follow-up never came.
func (f *Finding) aboutCall(c *call) *Finding {
	f.Event, f.Dir, f.Exchange, f.Revision = c.n, c.dir, 0, c.rev
	f.Rule = f.Rule.in(c.rev)
	if c.exchange != nil {
		f.Exchange = c.exchange.number
	}
	f.ID, f.Method = printable.Line(clip.Prefix(string(c.id), maxShown)), printable.Line(clip.Prefix(c.method, maxShown))
	return f
}
