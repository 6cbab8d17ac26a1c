package check

import "mcpwire/mcp"

// The revisions, the oldest first.
const (
	r1 = mcp.Revision20241105
	r2 = mcp.Revision20250326
	r3 = mcp.Revision20250618
	r4 = mcp.Revision20251125
	r5 = mcp.Revision20260728
)

// Lists of revisions for rules. They must not be changed.
var (
	legacy   = []mcp.Revision{r1, r2, r3, r4}
	modern   = []mcp.Revision{r5}
	only2    = []mcp.Revision{r2}
	only4    = []mcp.Revision{r4}
	from2    = []mcp.Revision{r2, r3, r4, r5}
	from3    = []mcp.Revision{r3, r4, r5}
	from4    = []mcp.Revision{r4, r5}
	with2to4 = []mcp.Revision{r2, r3, r4} // with sessions over Streamable HTTP
	both34   = []mcp.Revision{r3, r4}
)
