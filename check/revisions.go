package check

import "mcpwire/mcp"

// The revisions, the oldest first.
const (
	rev20241105 = mcp.Revision20241105
	rev20250326 = mcp.Revision20250326
	rev20250618 = mcp.Revision20250618
	rev20251125 = mcp.Revision20251125
	rev20260728 = mcp.Revision20260728
)

// Lists of revisions for rules. They must not be changed.
var (
	legacyRevisions            = []mcp.Revision{rev20241105, rev20250326, rev20250618, rev20251125}
	modernRevisions            = []mcp.Revision{rev20260728}
	hasBatches                 = []mcp.Revision{rev20250326}
	hasCoreTasks               = []mcp.Revision{rev20251125}
	hasStreamableHTTP          = []mcp.Revision{rev20250326, rev20250618, rev20251125, rev20260728}
	hasStructuredOutput        = []mcp.Revision{rev20250618, rev20251125, rev20260728}
	hasURLElicitation          = []mcp.Revision{rev20251125, rev20260728}
	hasSessions                = []mcp.Revision{rev20250326, rev20250618, rev20251125} // with sessions over Streamable HTTP
	hasNegotiatedVersionHeader = []mcp.Revision{rev20250618, rev20251125}
)
