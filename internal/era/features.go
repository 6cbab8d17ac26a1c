package era

import (
	"mcpwire/mcp"
)

// Features describes a revision. Values are shared and must not be changed.
type Features struct {
	// Revision is the described revision.
	Revision mcp.Revision
	// Modern revisions have metadata in each request in place of a handshake, and a resultType in
	// results.
	Modern bool

	// Batches says that messages may come in arrays.
	Batches bool
	// VersionHeader says that clients name the revision in a header of HTTP requests.
	VersionHeader bool
	// Polling says that an HTTP stream begins with an event that only has an id, and may be closed
	// before its result.
	Polling bool
	// NullErrorID says that an error without a known id has "id":null. In other revisions it has no
	// id.
	NullErrorID bool

	// Completions says that there is a capability for completion. Before, servers needed none for
	// it.
	Completions bool
	// Structured says that tools have structuredContent and outputSchema. The root is an object.
	Structured bool
	// StructuredAny allows any root for these.
	StructuredAny bool
	// CoreTasks says that tasks are part of the core protocol, not of the extension.
	CoreTasks bool
	// Icons says that implementations have icons and longer descriptions.
	Icons bool

	// Elicitation says that servers may elicit input by form.
	Elicitation bool
	// URLElicitation says that servers may elicit input by URL.
	URLElicitation bool
	// ElicitationIDs says that URL elicitations have ids, an error that requires them, and a
	// notification that completes them.
	ElicitationIDs bool
	// MultiSelect says that forms have fields with several values.
	MultiSelect bool
	// SamplingTools says that sampling has tools, and that clients declare support for them.
	SamplingTools bool
}

var features = func() [6]Features {
	var all [6]Features
	for _, r := range mcp.Revisions() {
		all[r] = Features{
			Revision:       r,
			Modern:         r.Modern(),
			Batches:        r == mcp.Revision20250326,
			VersionHeader:  r >= mcp.Revision20250618,
			Polling:        r == mcp.Revision20251125,
			NullErrorID:    r <= mcp.Revision20250618,
			Completions:    r >= mcp.Revision20250326,
			Structured:     r >= mcp.Revision20250618,
			StructuredAny:  r >= mcp.Revision20260728,
			CoreTasks:      r == mcp.Revision20251125,
			Icons:          r >= mcp.Revision20251125,
			Elicitation:    r >= mcp.Revision20250618,
			URLElicitation: r >= mcp.Revision20251125,
			ElicitationIDs: r == mcp.Revision20251125,
			MultiSelect:    r >= mcp.Revision20251125,
			SamplingTools:  r >= mcp.Revision20251125,
		}
	}
	return all
}()

// Of returns the features of a revision. For RevisionNone they are those of plain JSON-RPC.
func Of(r mcp.Revision) *Features { return &features[r] }

// latest returns the newest revision that keep accepts, or RevisionNone.
func latest(revisions []mcp.Revision, keep func(mcp.Revision) bool) mcp.Revision {
	best := mcp.RevisionNone
	for _, r := range revisions {
		if r > best && keep(r) {
			best = r
		}
	}
	return best
}

// HasMethod reports if clients of the revision may send the request to a server with the capability
// for it.
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

// ServerCapability returns the path of the server capability that a method needs, or nil. Not all
// revisions have completions.
func ServerCapability(method string, completions bool) []string {
	switch method {
	case mcp.MethodToolsList, mcp.MethodToolsCall:
		return []string{"tools"}
	case mcp.MethodResourcesList, mcp.MethodResourceTemplatesList, mcp.MethodResourcesRead:
		return []string{"resources"}
	case mcp.MethodResourcesSubscribe, mcp.MethodResourcesUnsubscribe:
		return []string{"resources", "subscribe"}
	case mcp.MethodPromptsList, mcp.MethodPromptsGet:
		return []string{"prompts"}
	case mcp.MethodSetLevel:
		return []string{"logging"}
	case mcp.MethodComplete:
		if completions {
			return []string{"completions"}
		}
	}
	return nil
}
