package cli

import (
	"fmt"
	"io"
	"runtime"
	"runtime/debug"
	"strings"

	"github.com/spf13/cobra"

	"mcpwire/mcp"
)

// Version is the version of this source tree.
const Version = "0.1.0-dev"

func newVersionCommand(e *env) *cobra.Command {
	return &cobra.Command{
		Use:   "version",
		Short: "print the version",
		Long:  "Print the version, the supported revisions of MCP, and build information.",
		Example: `  mcpwire version
  mcpwire version | head -1`,
		Args: flagsOnly,
		RunE: func(*cobra.Command, []string) error {
			_, err := io.WriteString(e.stdout, versionText())
			return err
		},
	}
}

// versionText returns the output of version and --version.
func versionText() string {
	var dates []string
	for _, r := range mcp.Revisions() {
		dates = append(dates, r.String())
	}
	return fmt.Sprintf("mcpwire %s%s\nMCP %s\n%s %s/%s\n", Version, commit(), strings.Join(dates, ", "), runtime.Version(), runtime.GOOS, runtime.GOARCH)
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
