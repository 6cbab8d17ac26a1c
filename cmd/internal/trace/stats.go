package trace

import (
	"bytes"
	"cmp"
	"math/bits"
	"slices"
	"time"

	"mcpwire/cmd/internal/text/tokens"
	"mcpwire/internal/json/jsonwire"
	"mcpwire/internal/text/clip"
	"mcpwire/mcp"
)

// A Stat summarizes the requests with one method, or the calls of one tool.
type Stat struct {
	// Server is the label of the session: see [Session.Label]. Requests of the handshake count for
	// the name of the capture.
	Server string
	// Name is the method or tool.
	Name string
	// Calls counts requests. The rounds of one request count once.
	Calls uint64

	// OK, Errors, ToolErrors, Canceled and Unanswered count the known outcomes.
	OK, Errors, ToolErrors, Canceled, Unanswered uint64

	// LongestWait is the longest time that an unanswered request has waited.
	LongestWait time.Duration

	// Latency has the server times of the answered requests, without waits for the client.
	Latency Histogram
	// BytesIn and BytesOut are the sizes of requests and responses, including further rounds.
	BytesIn, BytesOut int64
	// DefinitionBytes is the size of the tool's definition in the last list.
	DefinitionBytes int64
	// definition is the definition, for DefinitionTokens.
	definition []byte
	// tokens is what DefinitionTokens has counted, or zero.
	tokens int
}

// DefinitionTokens returns the number of o200k tokens of the tool's definition in the last list, as
// [tokens.CountTool] counts them. It is zero without a list. If the tools of a capture have
// definitions of more than 16 MiB, those that exceed it count as a token for every four bytes.
func (s *Stat) DefinitionTokens() int {
	if s.tokens == 0 && s.definition != nil {
		s.tokens, _ = tokens.CountTool(s.definition)
	}
	if s.tokens == 0 {
		return int(s.DefinitionBytes / 4)
	}
	return s.tokens
}

type statKey struct {
	server, name string
	tool         bool
}

// A statTable holds the statistics. Above maxStats, new names share "(others)".
type statTable struct {
	byKey map[statKey]*Stat
	// definitionBytes is the size of all definitions that are kept.
	definitionBytes int
}

// A statPair has the statistics that a request counts for: its method and, if it calls a tool, the
// tool.
type statPair struct{ method, tool *Stat }

const (
	maxStats   = 2048
	otherNames = "(others)"
	// maxDefinitionBytes limits the definitions that are kept to count their tokens.
	maxDefinitionBytes = 16 << 20
)

func newStatTable() statTable { return statTable{byKey: map[statKey]*Stat{}} }

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

// rename renames a server, except in the statistics of handshakes.
func (t statTable) rename(from, to string) {
	for k, s := range t.byKey {
		if k.server == from && (k.tool || !isHandshake(k.name)) {
			delete(t.byKey, k)
			k.server, s.Server = to, to
			t.byKey[k] = s
		}
	}
}

// isHandshake reports whether a method belongs to the handshake, which ends before the server's
// name is known.
func isHandshake(method string) bool {
	return method == mcp.MethodInitialize || method == mcp.MethodDiscover
}

// serverOf returns the label of the server that a request counts for.
func serverOf(r *Row) string {
	if isHandshake(r.Method) {
		return Join(" ", r.Capture.Name, string(r.Session.Side))
	}
	return r.Session.Label()
}

// forRow returns the statistics that a request counts for.
func (t statTable) forRow(r *Row) statPair {
	server := serverOf(r)
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

// removeUnanswered reverts the count of a request as unanswered.
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

// addDefinitions records the tool definitions in a tools/list result.
func (t *statTable) addDefinitions(r *Row, result []byte) {
	list := jsonwire.Lookup(result, "tools")
	for el := jsonwire.ArrayElements(list); el.Next(); {
		if name := stringText(jsonwire.Lookup(el.Value(), "name")); name != "" {
			t.define(t.get(r.Session.Label(), clip.String(name, maxName), true), el.Value())
		}
	}
}

// define records the definition of a tool.
func (t *statTable) define(s *Stat, definition []byte) {
	s.DefinitionBytes = int64(len(definition))
	if bytes.Equal(definition, s.definition) {
		return
	}
	t.definitionBytes -= len(s.definition)
	s.definition, s.tokens = nil, 0
	if t.definitionBytes+len(definition) <= maxDefinitionBytes {
		s.definition = bytes.Clone(definition)
		t.definitionBytes += len(definition)
	}
}

// Tools returns the statistics of tools, ordered by server and name. It includes tools that were
// listed but not called.
func (m *Model) Tools() []*Stat { return m.stats.list(true) }

// Methods returns the statistics of methods, ordered by server and name.
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

// A Histogram counts durations in buckets of growing width: 32 for each power of two, so that a
// quantile is off by at most 1.6 %. It uses 256 bytes for each power of two that occurs. The zero
// value is empty.
type Histogram struct {
	n        uint64
	min, max time.Duration
	octaves  [64]*[subBuckets]uint64
}

const (
	subBits    = 5
	subBuckets = 1 << subBits
)

// Add counts a duration. Negative durations count as 0.
func (h *Histogram) Add(d time.Duration) {
	d = max(d, 0)
	if h.n == 0 || d < h.min {
		h.min = d
	}
	h.max = max(h.max, d)
	h.n++
	octave, sub := bucket(uint64(d))
	if h.octaves[octave] == nil {
		h.octaves[octave] = new([subBuckets]uint64)
	}
	h.octaves[octave][sub]++
}

// Merge adds the durations that another histogram counts.
func (h *Histogram) Merge(other *Histogram) {
	if other.n == 0 {
		return
	}
	if h.n == 0 || other.min < h.min {
		h.min = other.min
	}
	h.max = max(h.max, other.max)
	h.n += other.n
	for octave, subs := range other.octaves {
		if subs == nil {
			continue
		}
		if h.octaves[octave] == nil {
			h.octaves[octave] = new([subBuckets]uint64)
		}
		for sub, n := range subs {
			h.octaves[octave][sub] += n
		}
	}
}

// bucket returns the bucket of a value. Each value below subBuckets has its own bucket.
func bucket(v uint64) (octave, sub int) {
	octave = bits.Len64(v >> subBits)
	if octave == 0 {
		return 0, int(v)
	}
	return octave, int(v>>(octave-1)) & (subBuckets - 1)
}

// midpoint returns the value in the middle of a bucket.
func midpoint(octave, sub int) uint64 {
	if octave == 0 {
		return uint64(sub)
	}
	width := uint64(1) << (octave - 1)
	return (subBuckets+uint64(sub))*width + width/2
}

// Count returns the number of durations.
func (h *Histogram) Count() uint64 { return h.n }

// Max returns the longest duration.
func (h *Histogram) Max() time.Duration { return h.max }

// Quantile returns the duration that a share q of the durations does not exceed (0.5 is the
// median), or 0 if the histogram is empty.
func (h *Histogram) Quantile(q float64) time.Duration {
	if h.n == 0 {
		return 0
	}
	rank := uint64(q * float64(h.n))
	if float64(rank) < q*float64(h.n) || rank == 0 {
		rank++
	}
	switch {
	case rank >= h.n:
		return h.max
	case rank == 1:
		return h.min
	}
	var seen uint64
	for octave, subs := range h.octaves {
		if subs == nil {
			continue
		}
		for sub, n := range subs {
			if seen += n; seen >= rank {
				return min(max(time.Duration(midpoint(octave, sub)), h.min), h.max)
			}
		}
	}
	return h.max
}

// A Bucket counts durations that are at least Lower and below Upper.
type Bucket struct {
	Lower, Upper time.Duration
	Count        uint64
}

// Buckets returns the histogram in at most limit adjacent buckets, from the shortest duration to
// the longest, or nil if it is empty. The buckets have about equal width on a logarithmic scale.
func (h *Histogram) Buckets(limit int) []Bucket {
	if h.n == 0 {
		return nil
	}
	limit = max(limit, 1)
	lo, hi := bucketIndex(bucket(uint64(h.min))), bucketIndex(bucket(uint64(h.max)))
	shift := 0
	for (hi>>shift)-(lo>>shift)+1 > limit {
		shift++
	}
	list := make([]Bucket, (hi>>shift)-(lo>>shift)+1)
	for i := range list {
		list[i].Lower, list[i].Upper = lowerBound((lo>>shift+i)<<shift), lowerBound((lo>>shift+i+1)<<shift)
	}
	for octave, subs := range h.octaves {
		if subs == nil {
			continue
		}
		for sub, n := range subs {
			if n > 0 {
				list[bucketIndex(octave, sub)>>shift-lo>>shift].Count += n
			}
		}
	}
	return list
}

// bucketIndex numbers the buckets in the order of their durations.
func bucketIndex(octave, sub int) int { return octave<<subBits | sub }

// lowerBound returns the shortest duration in a bucket.
func lowerBound(number int) time.Duration {
	octave, sub := number>>subBits, uint64(number&(subBuckets-1))
	if octave == 0 {
		return time.Duration(sub)
	}
	if octave > 63-subBits { // longer than any duration
		return 1<<63 - 1
	}
	return time.Duration((subBuckets + sub) << (octave - 1))
}
