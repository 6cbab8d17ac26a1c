package cli

import (
	"io"
	"runtime"

	"github.com/spf13/cobra"

	"mcpwire/cmd/internal/build"
	"mcpwire/cmd/internal/cli/kit"
	"mcpwire/mcp"
)

func newVersionCommand(e *kit.Env) *cobra.Command {
	var asJSON bool
	c := &cobra.Command{
		Use:   "version",
		Short: "print the version",
		Long:  "Print the version, the supported revisions of MCP, and build information.",
		Example: `  mcpwire version
  mcpwire version --json | jq -r .version`,
		Args: kit.FlagsOnly,
		RunE: func(*cobra.Command, []string) error {
			if asJSON {
				revision, day := build.From()
				return kit.WriteJSON(e.Stdout, versionJSON{build.Version(), revision, day, mcp.Revisions(), runtime.Version(), runtime.GOOS, runtime.GOARCH})
			}
			_, err := io.WriteString(e.Stdout, build.Text())
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
