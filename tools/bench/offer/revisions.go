package offer

import (
	"fmt"
	"slices"

	"mcpwire/mcp"
)

// Revisions returns those of an era, "legacy" or "modern"; nil, which is all of them, if it is
// empty.
func Revisions(era string) ([]mcp.Revision, error) {
	switch era {
	case "":
		return nil, nil
	case "legacy", "modern":
		return slices.DeleteFunc(mcp.Revisions(), func(r mcp.Revision) bool { return r.Modern() != (era == "modern") }), nil
	}
	return nil, fmt.Errorf("unknown era %q", era)
}
