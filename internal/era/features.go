package era

import (
	"mcpwire/mcp"
)

// Features says what a revision has. Values are shared: they must not be changed.
type Features struct {
	Revision mcp.Revision
	Modern   bool // metadata in each request instead of a handshake; results carry resultType

	Batches     bool // arrays of messages
	Polling     bool // an HTTP stream begins with an event that only has an id, and may be closed before its result
	NullErrorID bool // an error that belongs to no readable id has "id":null; else none

	Completions     bool // a capability for completion, which there is without it before
	ProgressMessage bool
	Structured      bool // structuredContent and outputSchema, with an object at the root
	StructuredAny   bool // the same with any root
	CoreTasks       bool // tasks of the core protocol, not of the extension
	Icons           bool // icons, and the longer description of an implementation

	Elicitation    bool // by form
	URLElicitation bool
	ElicitationIDs bool // pages have ids, and there are an error that requires one and a notification that the user is done there
	MultiSelect    bool // fields of forms of which users choose several values
	SamplingTools  bool // tools in sampling; clients declare what they support of it
}

var features = func() [6]Features {
	var all [6]Features
	for _, r := range mcp.Revisions() {
		all[r] = Features{
			Revision:        r,
			Modern:          r.Modern(),
			Batches:         r == mcp.Revision20250326,
			Polling:         r == mcp.Revision20251125,
			NullErrorID:     r <= mcp.Revision20250618,
			Completions:     r >= mcp.Revision20250326,
			ProgressMessage: r >= mcp.Revision20250326,
			Structured:      r >= mcp.Revision20250618,
			StructuredAny:   r >= mcp.Revision20260728,
			CoreTasks:       r == mcp.Revision20251125,
			Icons:           r >= mcp.Revision20251125,
			Elicitation:     r >= mcp.Revision20250618,
			URLElicitation:  r >= mcp.Revision20251125,
			ElicitationIDs:  r == mcp.Revision20251125,
			MultiSelect:     r >= mcp.Revision20251125,
			SamplingTools:   r >= mcp.Revision20251125,
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

// HasMethod reports whether clients of the revision may send the request to a server that has the capability for it.
func (f *Features) HasMethod(method []byte) bool {
	switch string(method) {
	case mcp.MethodToolsCall, mcp.MethodToolsList, mcp.MethodPromptsGet, mcp.MethodPromptsList, mcp.MethodComplete,
		mcp.MethodResourcesList, mcp.MethodResourceTemplatesList, mcp.MethodResourcesRead:
		return true
	case mcp.MethodPing, mcp.MethodInitialize, mcp.MethodSetLevel, mcp.MethodResourcesSubscribe, mcp.MethodResourcesUnsubscribe:
		return !f.Modern
	case mcp.MethodDiscover, mcp.MethodSubscriptionsListen:
		return f.Modern
	case mcp.MethodTasksGet, mcp.MethodTasksCancel:
		return f.CoreTasks || f.Modern
	case mcp.MethodTasksResult, mcp.MethodTasksList:
		return f.CoreTasks
	case mcp.MethodTasksUpdate:
		return f.Modern
	}
	return false
}
