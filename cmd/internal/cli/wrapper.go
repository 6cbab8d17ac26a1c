package cli

import (
	"os"
	"os/exec"
	"path/filepath"

	"mcpwire/cmd/internal/inspect/hosts"
	"mcpwire/internal/text/clip"
	"mcpwire/internal/text/printable"
)

// ownPath returns the path of this program that survives upgrades: the path that the shell finds,
// which may link into the folder of one version.
func ownPath() (string, error) {
	exe, err := os.Executable()
	if err != nil {
		return "", err
	}
	for _, name := range []string{filepath.Base(os.Args[0]), os.Args[0]} {
		if found, err := exec.LookPath(name); err == nil && sameFile(found, exe) {
			return filepath.Abs(found)
		}
	}
	return exe, nil
}

func sameFile(a, b string) bool {
	x, err := os.Stat(a)
	if err != nil {
		return false
	}
	y, err := os.Stat(b)
	return err == nil && os.SameFile(x, y)
}

// otherTap describes the tap of an entry if it is another program than this one, which may have
// been moved since. It returns "" if it is this one.
func otherTap(s hosts.Server) string {
	if s.Wrapper == "" {
		return ""
	}
	name := clip.Characters(printable.Line(s.Wrapper), maxRunsColumns)
	found, err := exec.LookPath(s.Wrapper)
	if err != nil {
		return ", by " + name + ", which is not there: unwrap it, and wrap it again"
	}
	if exe, err := os.Executable(); err != nil || !sameFile(found, exe) {
		return ", by " + name
	}
	return ""
}
