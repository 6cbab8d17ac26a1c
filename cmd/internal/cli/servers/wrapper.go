package servers

import (
	"os"
	"os/exec"

	"mcpwire/cmd/internal/cli/kit"
	"mcpwire/cmd/internal/cli/targets"
	"mcpwire/cmd/internal/inspect/hosts"
	"mcpwire/internal/text/clip"
	"mcpwire/internal/text/printable"
)

// otherTap describes the tap of an entry if it is another program than this one, which may have
// been moved since. It returns "" if it is this one.
func otherTap(s hosts.Server) string {
	if s.Wrapper == "" {
		return ""
	}
	name := clip.Characters(printable.Line(s.Wrapper), targets.MaxRunsColumns)
	found, err := exec.LookPath(s.Wrapper)
	if err != nil {
		return ", by " + name + ", which is not there: unwrap it, and wrap it again"
	}
	if exe, err := os.Executable(); err != nil || !kit.SameFile(found, exe) {
		return ", by " + name
	}
	return ""
}
