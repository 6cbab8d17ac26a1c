package era

import "mcpwire/mcp"

// Features says what a revision has. Values are shared: they must not be changed.
type Features struct {
	Revision mcp.Revision
	Modern   bool // metadata in each request instead of a handshake; results carry resultType

	Batches     bool // arrays of messages
	NullErrorID bool // an error that belongs to no readable id has "id":null; else none

	ToolAnnotations bool
	Audio           bool // audio content
	ProgressMessage bool
	Titles          bool
	Structured      bool // structuredContent and outputSchema, with an object at the root
	StructuredAny   bool // the same with any root
	ResourceLinks   bool // resource_link content
	ItemMeta        bool // _meta of tools and of content, lastModified in annotations
	Icons           bool // icons, and the longer description of an implementation
}

var features = func() [6]Features {
	var all [6]Features
	for _, r := range mcp.Revisions() {
		all[r] = Features{
			Revision:        r,
			Modern:          r.Modern(),
			Batches:         r == mcp.Revision20250326,
			NullErrorID:     r <= mcp.Revision20250618,
			ToolAnnotations: r >= mcp.Revision20250326,
			Audio:           r >= mcp.Revision20250326,
			ProgressMessage: r >= mcp.Revision20250326,
			Titles:          r >= mcp.Revision20250618,
			Structured:      r >= mcp.Revision20250618,
			StructuredAny:   r >= mcp.Revision20260728,
			ResourceLinks:   r >= mcp.Revision20250618,
			ItemMeta:        r >= mcp.Revision20250618,
			Icons:           r >= mcp.Revision20251125,
		}
	}
	return all
}()

// Of returns the features of a revision; of RevisionNone it returns those of plain JSON-RPC.
func Of(r mcp.Revision) *Features { return &features[r] }

// latest returns the newest of the revisions for which keep holds, or RevisionNone.
func latest(revisions []mcp.Revision, keep func(mcp.Revision) bool) mcp.Revision {
	best := mcp.RevisionNone
	for _, r := range revisions {
		if r > best && keep(r) {
			best = r
		}
	}
	return best
}

// HasMethod reports whether clients of the revision may send the request to a server with tools.
func (f *Features) HasMethod(method []byte) bool {
	switch string(method) {
	case mcp.MethodToolsCall, mcp.MethodToolsList:
		return true
	case mcp.MethodPing, mcp.MethodInitialize, mcp.MethodSetLevel:
		return !f.Modern
	case mcp.MethodDiscover, mcp.MethodSubscriptionsListen:
		return f.Modern
	}
	return false
}
