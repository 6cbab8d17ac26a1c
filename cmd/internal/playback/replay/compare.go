package replay

import (
	"bytes"
	"cmp"
	"math/big"
	"slices"
	"strconv"
	"strings"
	"time"

	"mcpwire/capture"
	"mcpwire/cmd/internal/json/jsondiff"
	"mcpwire/cmd/internal/playback/resend"
	"mcpwire/cmd/internal/trace"
	"mcpwire/internal/json/jsonedit"
	"mcpwire/internal/json/jsonpointer"
	"mcpwire/internal/json/jsonwire"
	"mcpwire/internal/text/clip"
	"mcpwire/internal/text/lazyregexp"
	"mcpwire/jsonrpc"
	"mcpwire/mcp"
)

const (
	maxDifferences = 50       // of a result
	maxShown       = 4 << 10  // bytes of a value
	maxCompared    = 16 << 20 // bytes of a compared message
	maxChanges     = 1000     // examined changes
	maxScanned     = 1 << 30  // bytes scanned for the values of all differences of a message
	timeTolerance  = 24 * time.Hour
)

// A side is one of the compared messages.
type side struct {
	raw      []byte
	at       time.Time
	redacted []string
}

// A comparer compares messages.
type comparer struct {
	redactor *capture.Redactor
	ignore   []string
	strict   bool
	// modern reports a modern recording.
	modern bool
	// versionNoted reports that a change of the server's version was noted.
	versionNoted bool
}

func newComparer(rec *Recording, opts *Options) *comparer {
	return &comparer{redactor: capture.NewRedactor(nil), ignore: append([]string{"/id", "/jsonrpc"}, opts.Ignore...), strict: opts.Strict, modern: rec.Modern}
}

// compare returns the differences of a message from the recorded one.
func (c *comparer) compare(recorded, live side) []Difference {
	if len(recorded.raw) > maxCompared || len(live.raw) > maxCompared {
		if bytes.Equal(recorded.raw, live.raw) {
			return nil
		}
		return []Difference{{Op: "replace", Old: "a message too large to compare", New: "another one"}}
	}
	a, b := bytes.TrimSpace(recorded.raw), bytes.TrimSpace(live.raw)
	old, _ := c.redactor.Message(nil, a) // hides secrets
	now, _ := c.redactor.Message(nil, b)
	x, y := a, b
	if !c.strict {
		x, y = normalize(a), normalize(b)
	}
	var list []Difference
	looked := 0
	x, y, lists := byName(x, y)
	for _, ch := range jsondiff.Diff(x, y, &jsondiff.Options{Ignore: ignoredPointers(c.ignore, lists), MaxChanges: maxChanges, MaxValue: 1}) {
		from, to, name := originalPointers(cmp.Or(ch.OldPointer, ch.Pointer), ch.Pointer, lists)
		d := Difference{Op: string(ch.Op), Pointer: to, Name: name}
		if looked += 2 * (len(a) + len(b)); len(list) == maxDifferences || looked > maxScanned || ch.Op == jsondiff.More {
			return append(list, Difference{Op: string(jsondiff.More)})
		}
		switch {
		case slices.Contains(recorded.redacted, from) && ch.Op != jsondiff.Add:
			continue
		case ch.Op == jsondiff.Replace && c.equivalent(valueAt(a, from), valueAt(b, to), recorded.at, live.at):
			continue
		}
		if ch.Op == jsondiff.Remove {
			d.Pointer = from
		}
		if ch.Op != jsondiff.Add {
			d.Old = string(valueAt(old, from))
		}
		if ch.Op != jsondiff.Remove {
			d.New = string(valueAt(now, to))
		}
		if max(len(d.Old), len(d.New)) > maxShown {
			d.Old, d.New = jsondiff.TrimCommonPrefix(d.Old, d.New)
		}
		d.Old, d.New = clip.String(d.Old, maxShown), clip.String(d.New, maxShown)
		d.Note = !c.strict && strings.HasSuffix(d.Pointer, "/serverInfo/version")
		list = append(list, d)
	}
	return list
}

// result compares the response of a request with the recorded one.
func (c *comparer) result(l *liveCall) *Result {
	call := l.call
	r := &Result{Status: Same, OK: true, LiveN: l.responseN}
	ms := trace.Millis(l.latency)
	r.Live = &ms
	switch {
	case call.response == nil:
		r.Status = Open
		if call.notifications.isSubscription && l.response.m.Kind == jsonrpc.KindError {
			r.Status, r.OK = Different, false
			r.Differences = c.compareResponses(side{}, side{}, &jsonrpc.Message{}, &l.response.m)
		}
	case c.wasWorking(l):
		r.Why = "the task was still running, so its status depends on timing"
	default:
		was := side{raw: call.response.raw, at: call.responseAt, redacted: call.response.redacted}
		r.Differences = c.compareResponses(was, side{raw: l.response.raw, at: time.Now()}, &call.response.m, &l.response.m)
		if ok, old, now := sameNotifications(&call.notifications, &l.notifications, c.strict); !ok {
			r.Differences = append(r.Differences, Difference{Op: "notifications", Old: strings.Join(old, " "), New: strings.Join(now, " ")})
		}
		r.judge()
		c.noteVersion(l, r)
	}
	return r
}

// noteVersion notes once that a modern server, which sends its version in each response, has
// another version.
func (c *comparer) noteVersion(l *liveCall, r *Result) {
	if c.versionNoted || !c.modern || c.strict {
		return
	}
	place := []string{"_meta", mcp.MetaServerInfo, "version"}
	old, now := jsonwire.Text(jsonwire.Lookup(l.call.response.result(), place...)), jsonwire.Text(jsonwire.Lookup(l.response.m.Result, place...))
	if old != "" && now != "" && old != now {
		c.versionNoted = true
		pointer := "/result/_meta/" + jsonpointer.Escape(mcp.MetaServerInfo) + "/version"
		r.Differences = append(r.Differences, Difference{Op: "replace", Pointer: pointer, Old: string(quoted(old)), New: string(quoted(now)), Note: true})
	}
}

// wasWorking reports whether the recorded response is that of a working task, whose progress
// depends on time.
func (c *comparer) wasWorking(l *liveCall) bool {
	return !c.strict && l.call.method == mcp.MethodTasksGet && l.response.m.Kind == jsonrpc.KindResponse && jsonwire.Text(jsonwire.Lookup(l.call.response.result(), "status")) == working
}

// equivalent reports whether two values count as equal: because a part of the first was hidden, or
// because both are times of their messages.
func (c *comparer) equivalent(was, is []byte, wasAt, isAt time.Time) bool {
	if len(was) == 0 || len(is) == 0 {
		return false
	}
	if was[0] == '"' && is[0] == '"' {
		s, t := jsonwire.Text(was), jsonwire.Text(is)
		if s == t || matches(s, t) {
			return true
		}
		if c.strict {
			return false
		}
		m, n := normalizeText(s), normalizeText(t)
		return m != "" && matches(m, n) || isTimeNear([]byte(s), wasAt) && isTimeNear([]byte(t), isAt)
	}
	return !c.strict && isTimeNear(was, wasAt) && isTimeNear(is, isAt)
}

// isTimeNear reports whether a number is a time close to t, in seconds or milliseconds since 1970.
func isTimeNear(number []byte, t time.Time) bool {
	if len(number) < 9 || len(number) > 32 || number[0] < '0' || number[0] > '9' || t.IsZero() || bytes.ContainsAny(number, "eE/") {
		return false
	}
	f, _, err := big.ParseFloat(string(number), 10, 64, big.ToNearestEven)
	if err != nil {
		return false
	}
	v, _ := f.Float64()
	for _, unit := range []float64{1, 1e3} {
		if d := v/unit - float64(t.UnixMilli())/1e3; d < timeTolerance.Seconds() && d > -timeTolerance.Seconds() {
			return true
		}
	}
	return false
}

// compareResponses compares a response with the recorded one.
func (c *comparer) compareResponses(recorded, live side, old, now *jsonrpc.Message) []Difference {
	if (old.Kind == jsonrpc.KindError) == (now.Kind == jsonrpc.KindError) {
		return c.compare(recorded, live)
	}
	hide := func(b []byte) string {
		out, _ := c.redactor.Message(nil, b)
		return clip.String(out, maxShown)
	}
	if now.Kind == jsonrpc.KindError {
		return []Difference{{Op: "answer", Pointer: "/error", Old: hide(old.Result), New: hide(now.Error)}}
	}
	return []Difference{{Op: "answer", Pointer: "/result", Old: hide(old.Error), New: hide(now.Result)}}
}

// A namedList is a list in the results of two messages whose elements have names. It is compared by
// name, since servers may list in any order, and an additional element moves all that follow.
type namedList struct {
	// prefix is the prefix of pointers into the list.
	prefix string
	// before and after are the names in the order of the first and the second message.
	before, after []string
}

// listKeys are the lists of results, and the member that names an element.
var listKeys = [][2]string{{"tools", "name"}, {"prompts", "name"}, {"resources", "uri"}, {"resourceTemplates", "uriTemplate"}}

// byName returns two messages with objects instead of lists, which map names to elements. It keeps
// a list without names or with a repeated one.
func byName(a, b []byte) (x, y []byte, lists []namedList) {
	x, y = a, b
	for _, k := range listKeys {
		was, ok := namesOf(jsonwire.Lookup(x, "result", k[0]), k[1])
		if !ok {
			continue
		}
		is, ok := namesOf(jsonwire.Lookup(y, "result", k[0]), k[1])
		if !ok {
			continue
		}
		lists = append(lists, namedList{"/result/" + k[0] + "/", was, is})
		x, y = withObject(x, k[0], was), withObject(y, k[0], is)
	}
	return x, y, lists
}

// namesOf returns the names of a list's elements. ok reports whether each element has a unique one.
func namesOf(list []byte, key string) (names []string, ok bool) {
	if len(list) == 0 || list[0] != '[' {
		return nil, false
	}
	seen := map[string]bool{}
	for el := jsonwire.ArrayElements(list); el.Next(); {
		name := jsonwire.Lookup(el.Value(), key)
		if len(name) == 0 || name[0] != '"' || seen[jsonwire.Text(name)] {
			return nil, false
		}
		seen[jsonwire.Text(name)] = true
		names = append(names, jsonwire.Text(name))
	}
	return names, true
}

// withObject returns a message with an object instead of a list in its result. names are the names
// of the elements.
func withObject(message []byte, list string, names []string) []byte {
	at := jsonedit.Locate(message, "result", list)
	object := []byte{'{'}
	elements := jsonwire.ArrayElements(at.Of(message))
	for i := 0; elements.Next(); i++ {
		if i > 0 {
			object = append(object, ',')
		}
		object = append(jsonwire.AppendQuote(object, names[i]), ':')
		object = append(object, elements.Value()...)
	}
	return jsonedit.Splice(message, at, append(object, '}'))
}

// ignoredPointers returns the patterns of ignored places, with names instead of the indexes of
// recorded elements.
func ignoredPointers(patterns []string, lists []namedList) []string {
	if lists == nil {
		return patterns
	}
	out := slices.Clone(patterns)
	for i, p := range out {
		for _, l := range lists {
			rest, ok := strings.CutPrefix(p, l.prefix)
			if !ok {
				continue
			}
			part, below, deeper := strings.Cut(rest, "/")
			n, err := strconv.Atoi(part)
			if err != nil || n < 0 || n >= len(l.before) {
				continue
			}
			if out[i] = l.prefix + jsonpointer.Escape(l.before[n]); deeper {
				out[i] += "/" + below
			}
		}
	}
	return out
}

// originalPointers translates pointers into the objects of byName to pointers into the two original
// messages. It also returns the name of the list element that they are in, or "".
func originalPointers(first, pointer string, lists []namedList) (was, is, name string) {
	was, is = first, pointer
	for _, l := range lists {
		if rest, ok := strings.CutPrefix(first, l.prefix); ok {
			was, name = l.index(rest, l.before)
		}
		if rest, ok := strings.CutPrefix(pointer, l.prefix); ok {
			is, name = l.index(rest, l.after)
		}
	}
	return was, is, name
}

// index returns a pointer with an index instead of the name at its beginning. The name of a missing
// element stays.
func (l *namedList) index(rest string, names []string) (pointer, name string) {
	part, below, deeper := strings.Cut(rest, "/")
	name = jsonpointer.Unescape(part)
	if i := slices.Index(names, name); i >= 0 {
		part = strconv.Itoa(i)
	}
	if pointer = l.prefix + part; deeper {
		pointer += "/" + below
	}
	return pointer, name
}

// volatile matches texts that differ each time: times (RFC 3339, also with a space instead of the
// T), UUIDs and ULIDs.
var volatile = lazyregexp.New(`(?P<time>\b\d{4}-\d\d-\d\d[Tt ]\d\d:\d\d(?::\d\d(?:[.,]\d+)?)?(?:[Zz]\b|[+-]\d\d:?\d\d\b|\b))` +
	`|(?P<uuid>\b[0-9a-fA-F]{8}-[0-9a-fA-F]{4}-[0-9a-fA-F]{4}-[0-9a-fA-F]{4}-[0-9a-fA-F]{12}\b)` +
	`|(?P<ulid>\b[0-7][0-9A-HJKMNP-TV-Z]{25}\b)`)

// Members of the protocol with values that the server chooses each time, and members of
// applications with the id of a session by their name.
var (
	serverChosen = []string{"requestState", "nextCursor", "taskId", "elicitationId", "createdAt", "lastUpdatedAt"}
	appSessions  = []string{"sessionId", "session_id", "requestId", "request_id", "traceId", "trace_id"}
	optional     = []string{"_meta", "ttlMs"} // may be absent
	appData      = []string{"structuredContent", "content", "contents", "messages", "arguments", "data"}
)

// A normalizer appends JSON text with the same text in place of values that differ each time. depth
// counts the levels of JSON in strings.
type normalizer struct{ depth int }

// maxTextDepth limits the levels of JSON in strings.
const maxTextDepth = 2

// normalize returns the normalized text of valid JSON.
func normalize(value []byte) []byte {
	var m normalizer
	return m.value(make([]byte, 0, len(value)), value, false)
}

// Volatile reports whether two values of a member, as JSON texts, differ only in parts that differ
// each time: times, UUIDs and ULIDs, and complete cursors, states and ids of tasks and sessions, by
// the member's name. It returns false for invalid JSON.
func Volatile(name string, old, now []byte) bool {
	var masked [2][]byte
	for i, v := range [][]byte{old, now} {
		if jsonwire.Valid(v, 0) != nil {
			return false
		}
		object := append(append([]byte{'{'}, quoted(name)...), ':')
		masked[i] = normalize(append(append(object, v...), '}'))
	}
	return bytes.Equal(masked[0], masked[1])
}

func (n *normalizer) value(dst, value []byte, app bool) []byte {
	switch value[0] {
	case '{':
		return n.object(dst, value, app)
	case '[':
		dst = append(dst, '[')
		elements := jsonwire.ArrayElements(value)
		for i := 0; elements.Next(); i++ {
			if i > 0 {
				dst = append(dst, ',')
			}
			dst = n.value(dst, elements.Value(), app)
		}
		return append(dst, ']')
	case '"':
		return n.string(dst, value)
	}
	return append(dst, value...)
}

func (n *normalizer) object(dst, value []byte, app bool) []byte {
	dst = append(dst, '{')
	first := true
	members := jsonwire.ObjectMembers(value)
	for members.Next() {
		name, v := members.KeyString(), members.Value()
		scalar := v[0] != '{' && v[0] != '['
		if name == "_meta" || !app && scalar && slices.Contains(optional, name) {
			continue
		}
		if !first {
			dst = append(dst, ',')
		}
		first = false
		dst = append(append(append(dst, '"'), members.RawKey()...), '"', ':')
		if v[0] == '"' && (slices.Contains(appSessions, name) || !app && slices.Contains(serverChosen, name)) {
			dst = append(dst, `"~"`...)
			continue
		}
		dst = n.value(dst, v, app || slices.Contains(appData, name))
	}
	return append(dst, '}')
}

// string normalizes a string. JSON in a string is normalized as JSON.
func (n *normalizer) string(dst, value []byte) []byte {
	s := jsonwire.Text(value)
	if n.depth < maxTextDepth {
		if t := strings.TrimSpace(s); t != "" && (t[0] == '{' || t[0] == '[') && jsonwire.Valid([]byte(t), 0) == nil {
			inner := normalizer{n.depth + 1}
			return jsonwire.AppendQuote(dst, inner.value(nil, []byte(t), true))
		}
	}
	if len(s) < len("2006-01-02T15:04") {
		return append(dst, value...)
	}
	return jsonwire.AppendQuote(dst, normalizeText(s))
}

// normalizeText replaces times and unique ids by their kinds.
func normalizeText(s string) string {
	names := volatile().SubexpNames()
	places := volatile().FindAllStringSubmatchIndex(s, -1)
	if places == nil {
		return s
	}
	var b strings.Builder
	from := 0
	for _, p := range places {
		b.WriteString(s[from:p[0]])
		for i := 1; i < len(names); i++ {
			if p[2*i] >= 0 {
				b.WriteString("~" + names[i] + "~")
			}
		}
		from = p[1]
	}
	b.WriteString(s[from:])
	return b.String()
}

// MatchesRedacted reports whether parts of the first text were hidden in a capture, and the second
// text matches the rest.
func MatchesRedacted(redacted, text string) bool {
	return resend.Placeholders(redacted) != nil && matches(redacted, text)
}

// matches reports whether live may be the recorded text before parts of it were hidden.
func matches(recorded, live string) bool {
	places := resend.Placeholders(recorded)
	if places == nil {
		return recorded == live
	}
	from := 0
	for i, p := range places {
		literal := recorded[from:p[0]]
		j := strings.Index(live, literal)
		if j < 0 || i == 0 && j > 0 {
			return false
		}
		live = live[j+len(literal):]
		from = p[1]
	}
	rest := recorded[from:]
	return strings.HasSuffix(live, rest)
}
