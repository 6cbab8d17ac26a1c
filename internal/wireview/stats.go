package trace

import (
	"cmp"
	"slices"
	"time"

	"mcpwire/internal/jsonwire"
	"mcpwire/mcp"
)

// A Stat sums up the requests with one method, or the calls of one tool.
type Stat struct {
	Server string // the name of its capture, with the side if it is a bridge's
	Name   string // of the method or tool
	Calls  uint64 // requests; the rounds of one count once

	OK, Errors, ToolErrors, Canceled, Unanswered uint64 // outcomes: of those that have one yet

	// LongestWait is how long the unanswered ones have waited, the longest of them.
	LongestWait time.Duration

	Latency           Histogram // that the server took, without the time for which it waited for the client, of those that were answered
	BytesIn, BytesOut int64     // of requests and of responses, with further rounds
	DefinitionBytes   int64     // of a tool's definition in the last list
}

type statKey struct {
	server, name string
	tool         bool
}

// A statTable holds the statistics. Above maxStats, names share "(others)".
type statTable struct{ byKey map[statKey]*Stat }

// A statPair is the statistics that a request counts for: those of its method, and if it calls a tool those of the tool.
type statPair struct{ method, tool *Stat }

const (
	maxStats   = 2048
	otherNames = "(others)"
)

func newStatTable() statTable { return statTable{map[statKey]*Stat{}} }

func (t statTable) get(server, name string, tool bool) *Stat {
	k := statKey{server, name, tool}
	p := t.byKey[k]
	if p == nil && len(t.byKey) >= maxStats {
		k.name = otherNames
		if p = t.byKey[k]; p == nil && len(t.byKey) >= 2*maxStats {
			k.server = otherNames
			p = t.byKey[k]
		}
	}
	if p == nil {
		p = &Stat{Server: k.server, Name: k.name}
		t.byKey[k] = p
	}
	return p
}

// forRow returns what a request counts for.
func (t statTable) forRow(r *Row) statPair {
	server := r.Session.Label()
	p := statPair{method: t.get(server, r.Method, false)}
	if r.Method == mcp.MethodToolsCall {
		p.tool = t.get(server, r.Target, true)
	}
	return p
}

func (p statPair) each(f func(s *Stat)) {
	f(p.method)
	if p.tool != nil {
		f(p.tool)
	}
}

func (p statPair) addCall(r *Row) {
	p.each(func(s *Stat) { s.Calls++; s.BytesIn += r.RequestBytes })
}

func (p statPair) addRetry(r *Row) { p.each(func(s *Stat) { s.BytesIn += r.RequestBytes }) }

func (p statPair) addResponse(r *Row) { p.each(func(s *Stat) { s.BytesOut += r.ResponseBytes }) }

// addOutcome counts the outcome of a request, once.
func (p statPair) addOutcome(r *Row) {
	if r.counted || r.Kind != Request {
		return
	}
	r.counted = true
	p.each(func(s *Stat) {
		switch r.Status {
		case Failed, HTTPFailed:
			s.Errors++
		case ToolFailed:
			s.ToolErrors++
		case Canceled:
			s.Canceled++
			return
		case Unanswered:
			s.Unanswered++
			s.LongestWait = max(s.LongestWait, r.Wall())
			return
		default:
			s.OK++
		}
		s.Latency.Add(r.ServerTime())
	})
}

// removeUnanswered takes back that a request was counted as one without an answer.
func (p statPair) removeUnanswered(r *Row) {
	if r.counted {
		r.counted = false
		p.each(func(s *Stat) {
			if s.Unanswered--; s.Unanswered == 0 {
				s.LongestWait = 0
			}
		})
	}
}

// addDefinitions notes how large the definitions of tools are.
func (t statTable) addDefinitions(r *Row, result []byte) {
	list := jsonwire.Lookup(result, "tools")
	if len(list) == 0 || list[0] != '[' {
		return
	}
	for el := jsonwire.ArrayElements(list); el.Next(); {
		if name := stringText(jsonwire.Lookup(el.Value(), "name")); name != "" {
			t.get(r.Session.Label(), clip(name, maxName), true).DefinitionBytes = int64(len(el.Value()))
		}
	}
}

// Tools returns the statistics of tools, also of those that were listed and never called, by server and name.
func (m *Model) Tools() []*Stat { return m.stats.list(true) }

// Methods returns the statistics of methods, by server and name.
func (m *Model) Methods() []*Stat { return m.stats.list(false) }

func (t statTable) list(tools bool) []*Stat {
	var list []*Stat
	for k, s := range t.byKey {
		if k.tool == tools {
			list = append(list, s)
		}
	}
	slices.SortFunc(list, func(a, b *Stat) int { return cmp.Or(cmp.Compare(a.Server, b.Server), cmp.Compare(a.Name, b.Name)) })
	return list
}
