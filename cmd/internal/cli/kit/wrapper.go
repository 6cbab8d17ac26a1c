package kit

import (
	"os"
	"os/exec"
	"path/filepath"
)

// OwnPath returns the path of this program that survives upgrades: the path that the shell finds,
// which may link into the folder of one version.
func OwnPath() (string, error) {
	exe, err := os.Executable()
	if err != nil {
		return "", err
	}
	for _, name := range []string{filepath.Base(os.Args[0]), os.Args[0]} {
		if found, err := exec.LookPath(name); err == nil && SameFile(found, exe) {
			return filepath.Abs(found)
		}
	}
	return exe, nil
}

// SameFile reports whether two paths lead to one file.
func SameFile(a, b string) bool {
	x, err := os.Stat(a)
	if err != nil {
		return false
	}
	y, err := os.Stat(b)
	return err == nil && os.SameFile(x, y)
}
