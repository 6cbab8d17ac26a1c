package cli

import (
	"context"
	"fmt"
	"runtime"
	"runtime/debug"
	"strings"

	"mcpwire/mcp"
)

// Version is the version of this source tree.
const Version = "0.1.0-dev"

const versionUsage = `
Usage: mcpwire version

Prints the version, the revisions of MCP that it speaks, and what it was built
with.
`

func runVersion(_ context.Context, e *env, args []string) error {
	fs := newFlags(e, "version", versionUsage, "")
	if err := fs.parse(args); err != nil {
		return err
	}
	var dates []string
	for _, r := range mcp.Revisions() {
		dates = append(dates, r.String())
	}
	_, err := fmt.Fprintf(e.stdout, "mcpwire %s%s\nMCP %s\n%s %s/%s\n", Version, commit(), strings.Join(dates, ", "), runtime.Version(), runtime.GOOS, runtime.GOARCH)
	return err
}

func commit() string {
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return ""
	}
	for _, s := range info.Settings {
		if s.Key == "vcs.revision" && len(s.Value) >= 12 {
			return " (" + s.Value[:12] + ")"
		}
	}
	return ""
}
