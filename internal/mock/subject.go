package mock

import (
	"iter"
	"strconv"
	"time"

	"mcpwire/internal/era"
	"mcpwire/internal/filter"
	"mcpwire/mcp"
)

// A subject is a request as filters see it: what is known when it comes.
type subject struct {
	play   *play
	text   []byte
	params []byte
}

// Any implements filter.Subject.
func (s *subject) Any(f filter.Field, match func(string) bool) bool {
	a := s.play
	switch f {
	case filter.Tool:
		return a.method == mcp.MethodToolsCall && match(targetOf(a.method, s.params))
	case filter.Target:
		t := targetOf(a.method, s.params)
		return t != "" && match(t)
	case filter.Method:
		return match(a.method)
	case filter.ID:
		return match(string(a.id))
	case filter.Dir:
		return match("c2s")
	case filter.Kind:
		return match("request")
	case filter.Server:
		return match(a.peer.srv.tape.Name)
	case filter.Task:
		id := ""
		if era.IsObject(s.params) {
			id = era.LookupString(s.params, "taskId")
		}
		return id != "" && match(id)
	case filter.Session:
		return a.entry != nil && a.entry.of != nil && match(strconv.FormatUint(a.entry.of.number, 10))
	case filter.Era:
		if a.modern {
			return match("modern")
		}
		return match("legacy")
	case filter.Rev:
		return s.revision(match)
	}
	return false
}

func (s *subject) revision(match func(string) bool) bool {
	if s.play.modern {
		return match(revisionOf(s.params).String())
	}
	p := s.play.peer
	p.mu.Lock()
	f := p.features
	p.mu.Unlock()
	return f != nil && match(f.Revision.String())
}

// Covers implements filter.Subject: the numbers are those of the recorded request, and of its answer.
func (s *subject) Covers(from, to uint64) bool {
	e := s.play.entry
	return e != nil && (e.n >= from && e.n <= to || e.done && e.responseN >= from && e.responseN <= to)
}

// Took implements filter.Subject.
func (s *subject) Took() (time.Duration, bool) { return 0, false }

// Bytes implements filter.Subject.
func (s *subject) Bytes() int64 { return int64(len(s.text)) }

// Payloads implements filter.Subject.
func (s *subject) Payloads() iter.Seq[[]byte] {
	return func(yield func([]byte) bool) { yield(s.text) }
}
