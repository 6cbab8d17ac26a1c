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

// Version is the version of the program. tools/release/build sets it, and the next two, when it
// links.
var Version = "0.1.0-dev"

// commit is the commit that the program was built from, and date its day. If they are empty, Go may
// have recorded them.
var commit, date string

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
				revision, day := builtFrom()
				return writeJSON(e.stdout, versionJSON{Version, revision, day, mcp.Revisions(), runtime.Version(), runtime.GOOS, runtime.GOARCH})
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
	// Commit is the first part of the commit that the program was built from, and Date its day.
	// They may be empty.
	Commit    string         `json:"commit,omitempty"`
	Date      string         `json:"date,omitempty"`
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
	built := ""
	if revision, day := builtFrom(); revision != "" {
		built = strings.TrimSuffix(" ("+revision+" "+day, " ") + ")"
	}
	return fmt.Sprintf("mcpwire %s%s\nMCP %s\n%s %s/%s\n", Version, built, strings.Join(dates, ", "), runtime.Version(), runtime.GOOS, runtime.GOARCH)
}

// builtFrom returns the first 12 digits of the commit and its day, or "" if they are unknown.
func builtFrom() (revision, day string) {
	revision, day = commit, date
	if revision == "" {
		revision, day = recorded("vcs.revision"), recorded("vcs.time")
	}
	if len(revision) < 12 {
		return "", ""
	}
	day, _, _ = strings.Cut(day, "T")
	return revision[:12], day
}

// recorded returns a setting that Go recorded in the program, or "".
func recorded(key string) string {
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return ""
	}
	for _, s := range info.Settings {
		if s.Key == key {
			return s.Value
		}
	}
	return ""
}
