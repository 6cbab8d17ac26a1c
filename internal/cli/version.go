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
	var asJSON bool
	c := &cobra.Command{
		Use:   "version",
		Short: "print the version",
		Long:  "Print the version, the supported revisions of MCP, and build information.",
		Example: `  mcpwire version
  mcpwire version --json | jq -r .version`,
		Args: flagsOnly,
		RunE: func(*cobra.Command, []string) error {
			if asJSON {
				return writeJSON(e.stdout, versionJSON{Version, commit(), mcp.Revisions(), runtime.Version(), runtime.GOOS, runtime.GOARCH})
			}
			_, err := io.WriteString(e.stdout, versionText())
			return err
		},
	}
	c.Flags().BoolVar(&asJSON, "json", false, "print one object")
	return c
}

// A versionJSON is the output of version --json.
type versionJSON struct {
	Version string `json:"version"`
	// Commit is the first part of the commit that the program was built from. It may be empty.
	Commit    string         `json:"commit,omitempty"`
	Revisions []mcp.Revision `json:"revisions"`
	Go        string         `json:"go"`
	OS        string         `json:"os"`
	Arch      string         `json:"arch"`
}

// versionText returns the output of version and --version.
func versionText() string {
	var dates []string
	for _, r := range mcp.Revisions() {
		dates = append(dates, r.String())
	}
	built := commit()
	if built != "" {
		built = " (" + built + ")"
	}
	return fmt.Sprintf("mcpwire %s%s\nMCP %s\n%s %s/%s\n", Version, built, strings.Join(dates, ", "), runtime.Version(), runtime.GOOS, runtime.GOARCH)
}

// commit returns the first 12 digits of the commit, or "" if unknown.
func commit() string {
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return ""
	}
	for _, s := range info.Settings {
		if s.Key == "vcs.revision" && len(s.Value) >= 12 {
			return s.Value[:12]
		}
	}
	return ""
}
