package trace

import (
	"iter"
	"strconv"
	"strings"
	"time"

	"mcpwire/internal/filter"
)

var _ filter.Subject = (*Row)(nil)

// MatchField reports whether match is true of a value that the row, or a row inside it, has for the field.
func (r *Row) MatchField(f filter.Field, match func(string) bool) bool {
	if f == filter.Server {
		name, label := r.Capture.Name, r.Session.Label()
		return name != "" && match(name) || label != "" && match(label)
	}
	if one, ok := r.sharedValue(f); ok {
		return one != "" && match(one)
	}
	for x := range r.All() {
		if x.matchOwn(f, match) {
			return true
		}
	}
	return false
}

// sharedValue returns the value of a field that all rows inside have in common.
func (r *Row) sharedValue(f filter.Field) (value string, ok bool) {
	switch f {
	case filter.Side:
		return string(r.Session.Side), true
	case filter.Session:
		return strconv.FormatUint(r.Session.Number, 10), true
	case filter.Era:
		return r.Era(), true
	case filter.Revision:
		return r.EffectiveRevision(), true
	}
	return "", false
}

func (r *Row) matchOwn(f filter.Field, match func(string) bool) bool {
	is := func(s string) bool { return s != "" && match(s) }
	switch f {
	case filter.Tool:
		return is(r.Tool())
	case filter.Target:
		return is(r.Target)
	case filter.Method:
		return is(r.Method)
	case filter.ID:
		return is(r.ID) || strings.HasPrefix(r.ID, `"`) && is(strings.Trim(r.ID, `"`))
	case filter.Task:
		return r.Task != nil && is(r.Task.ID) || r.Role == Poll && is(r.Target)
	case filter.Dir:
		return is(string(r.Dir))
	case filter.Kind:
		return is(string(r.Kind))
	case filter.Status:
		return is(string(r.Status)) || is(r.CodeText()) || r.HTTP != nil && r.HTTP.Status != 0 && is(strconv.Itoa(r.HTTP.Status))
	case filter.Finding:
		for _, l := range r.Findings {
			if is(l.Rule) || is(l.Severity) {
				return true
			}
		}
	}
	return false
}

// HasEventIn reports whether one of the row's events, or of those inside it, has a number in the range.
func (r *Row) HasEventIn(from, to uint64) bool {
	for x := range r.All() {
		for _, n := range x.Events {
			if n >= from && n <= to {
				return true
			}
		}
	}
	return false
}

// Elapsed returns how long the request took, and false if nothing ended it yet.
func (r *Row) Elapsed() (time.Duration, bool) {
	return r.Wall(), (r.Kind == Request || r.Kind == HTTP) && r.Done
}

// Bytes returns the size of the payloads of the request and its response.
func (r *Row) Bytes() int64 { return r.RequestBytes + r.ResponseBytes }

// Payloads yields the payloads of the row's events, and of those inside it, if the model knows how to load them; else the excerpts.
func (r *Row) Payloads() iter.Seq[[]byte] {
	return func(yield func([]byte) bool) {
		for x := range r.All() {
			if r.model.opts.Load == nil {
				if x.Excerpt != "" && !yield([]byte(x.Excerpt)) {
					return
				}
				continue
			}
			for _, n := range x.Events {
				if p, err := r.model.opts.Load(x.Capture.ID, n); err == nil && len(p) > 0 && !yield(p) {
					return
				}
			}
		}
	}
}
