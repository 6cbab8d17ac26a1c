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
	responder *responder
	text      []byte
	params    []byte
}

// MatchField implements filter.Subject.
func (s *subject) MatchField(f filter.Field, match func(string) bool) bool {
	a := s.responder
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
		return match(a.conn.srv.recording.Name)
	case filter.Task:
		id := ""
		if era.IsObject(s.params) {
			id = era.LookupString(s.params, "taskId")
		}
		return id != "" && match(id)
	case filter.Session:
		return a.exchange != nil && a.exchange.session != nil && match(strconv.FormatUint(a.exchange.session.number, 10))
	case filter.Era:
		if a.modern {
			return match("modern")
		}
		return match("legacy")
	case filter.Revision:
		return s.revision(match)
	}
	return false
}

func (s *subject) revision(match func(string) bool) bool {
	if s.responder.modern {
		return match(revisionOf(s.params).String())
	}
	p := s.responder.conn
	p.mu.Lock()
	f := p.features
	p.mu.Unlock()
	return f != nil && match(f.Revision.String())
}

// HasEventIn implements filter.Subject: the numbers are those of the recorded request, and of its answer.
func (s *subject) HasEventIn(from, to uint64) bool {
	e := s.responder.exchange
	return e != nil && (e.n >= from && e.n <= to || e.hasResponse && e.responseN >= from && e.responseN <= to)
}

// Elapsed implements filter.Subject.
func (s *subject) Elapsed() (time.Duration, bool) { return 0, false }

// Bytes implements filter.Subject.
func (s *subject) Bytes() int64 { return int64(len(s.text)) }

// Payloads implements filter.Subject.
func (s *subject) Payloads() iter.Seq[[]byte] {
	return func(yield func([]byte) bool) { yield(s.text) }
}
