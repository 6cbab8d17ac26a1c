package matrix

import "mcpwire/mcp"

// features has the features of a revision by the specification. It does not use internal/era, which
// is under test.
type features struct {
	Modern bool // no handshake

	Batches, Completions, ProgressMessage    bool
	ToolAnnotations, Titles, ItemMeta, Icons bool
	Structured, StructuredAny                bool // objects only; any value
	Elicitation, URLElicitation              bool
	ElicitationIDs                           bool // of URL elicitations
	SamplingTools                            bool
	CoreTasks                                bool

	revision mcp.Revision
}

func featuresOf(r mcp.Revision) *features {
	return &features{
		Modern:          r == mcp.Revision20260728,
		Batches:         r == mcp.Revision20250326,
		Completions:     r >= mcp.Revision20250326,
		ProgressMessage: r >= mcp.Revision20250326,
		ToolAnnotations: r >= mcp.Revision20250326,
		Titles:          r >= mcp.Revision20250618,
		ItemMeta:        r >= mcp.Revision20250618,
		Icons:           r >= mcp.Revision20251125,
		Structured:      r >= mcp.Revision20250618,
		StructuredAny:   r >= mcp.Revision20260728,
		Elicitation:     r >= mcp.Revision20250618,
		URLElicitation:  r >= mcp.Revision20251125,
		ElicitationIDs:  r == mcp.Revision20251125,
		SamplingTools:   r >= mcp.Revision20251125,
		CoreTasks:       r == mcp.Revision20251125,
		revision:        r,
	}
}

// Conditions for a behavior's when.
func modern(f *features) bool   { return f.Modern }
func legacy(f *features) bool   { return !f.Modern }
func hasForms(f *features) bool { return f.Elicitation }
func hasTasks(f *features) bool { return f.CoreTasks || f.Modern }

func since(r mcp.Revision) func(*features) bool {
	return func(f *features) bool { return f.revision >= r }
}
