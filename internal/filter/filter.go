package filter

import "context"

// A Filter says which exchanges to show. nil shows all.
type Filter struct {
	root  node
	scans []scan // of the terms about payloads, by their bit in Hits
}

// Hits tell which terms about payloads hold for the payloads of a subject seen so far. Those of several payloads are combined by "|".
type Hits uint64

const maxScans = 64 // bits in Hits

// A scan looks at a payload.
type scan interface {
	match(ctx context.Context, payload []byte) bool
}

// NeedsPayload reports whether there are terms about payloads.
func (f *Filter) NeedsPayload() bool { return f != nil && len(f.scans) > 0 }

// Scan returns which terms about payloads hold for a payload, which is not kept. ctx bounds how long jq programs run, besides a limit for each.
func (f *Filter) Scan(ctx context.Context, payload []byte) Hits {
	var h Hits
	if f == nil || len(payload) == 0 {
		return 0
	}
	for i, s := range f.scans {
		if s.match(ctx, payload) {
			h |= 1 << i
		}
	}
	return h
}

// MatchScanned reports whether the filter holds for a subject whose payloads had these hits.
func (f *Filter) MatchScanned(s Subject, h Hits) bool {
	return f == nil || f.root.eval(s, h)
}

// Match reports whether the filter holds for a subject. It asks for payloads only if it must.
func (f *Filter) Match(ctx context.Context, s Subject) bool {
	var h Hits
	if f.NeedsPayload() {
		all := Hits(1)<<len(f.scans) - 1
		for p := range s.Payloads() {
			if h |= f.Scan(ctx, p); h == all || ctx.Err() != nil {
				break
			}
		}
	}
	return f.MatchScanned(s, h)
}

// String returns the filter as text that Parse makes the same filter of.
func (f *Filter) String() string {
	if f == nil {
		return ""
	}
	return f.root.text(false)
}
