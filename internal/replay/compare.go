package replay

import (
	"bytes"
	"cmp"
	"math/big"
	"slices"
	"strings"
	"time"

	"mcpwire/capture"
	"mcpwire/internal/jsondiff"
	"mcpwire/internal/jsonwire"
	"mcpwire/jsonrpc"
)

const (
	maxDifferences = 50       // of a result
	maxShown       = 4 << 10  // bytes of a value
	maxCompared    = 16 << 20 // bytes of a message that is looked into
	maxChanges     = 1000     // that are looked through
	maxScanned     = 1 << 30  // bytes that are looked through for the values of all differences of a message
	timeTolerance  = 24 * time.Hour
)

// A side is one of the messages that are compared.
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
}

func newComparer(opts *Options) *comparer {
	return &comparer{redactor: capture.NewRedactor(nil), ignore: append([]string{"/id", "/jsonrpc"}, opts.Ignore...), strict: opts.Strict}
}

// compare returns in what a message differs from the recorded one.
func (c *comparer) compare(recorded, live side) []Difference {
	if len(recorded.raw) > maxCompared || len(live.raw) > maxCompared {
		if bytes.Equal(recorded.raw, live.raw) {
			return nil
		}
		return []Difference{{Op: "replace", Old: "a message that is too large to be compared", New: "another one"}}
	}
	a, b := bytes.TrimSpace(recorded.raw), bytes.TrimSpace(live.raw)
	old, _ := c.redactor.Message(nil, a) // what is secret must not be shown
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
		d.Old, d.New = excerpt([]byte(d.Old)), excerpt([]byte(d.New))
		d.Note = !c.strict && strings.HasSuffix(d.Pointer, "/serverInfo/version")
		list = append(list, d)
	}
	return list
}

// equivalent reports whether two values are as good as equal: because part of the first was hidden, or because both say what the time is.
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

// isTimeNear reports whether a number is a time near another, in seconds or milliseconds since 1970.
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

// excerpt is the beginning of a value.
func excerpt(value []byte) string {
	if len(value) <= maxShown {
		return string(value)
	}
	return strings.ToValidUTF8(string(value[:maxShown]), "") + "…"
}

// compareResponses compares an answer with the recorded one.
func (c *comparer) compareResponses(recorded, live side, old, now *jsonrpc.Message) []Difference {
	if (old.Kind == jsonrpc.KindError) == (now.Kind == jsonrpc.KindError) {
		return c.compare(recorded, live)
	}
	hide := func(b []byte) string {
		out, _ := c.redactor.Message(nil, b)
		return excerpt(out)
	}
	if now.Kind == jsonrpc.KindError {
		return []Difference{{Op: "answer", Pointer: "/error", Old: hide(old.Result), New: hide(now.Error)}}
	}
	return []Difference{{Op: "answer", Pointer: "/result", Old: hide(old.Error), New: hide(now.Result)}}
}
