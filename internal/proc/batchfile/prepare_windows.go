package batchfile

import (
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"

	"golang.org/x/sys/windows"
)

// Prepare makes cmd start cmd.exe with arguments quoted for it if cmd runs a batch file. It leaves
// other commands unchanged. Set Path, Args, Dir and SysProcAttr before, and do not change them
// afterwards. The error matches [ErrArguments], or reports that the system directory is unknown.
func Prepare(cmd *exec.Cmd) error {
	if cmd.Err != nil || len(cmd.Args) == 0 {
		return nil // Start returns an error, or nothing needs quotes
	}
	path, ok := batchFile(cmd.Path, cmd.Dir)
	if !ok {
		return nil
	}
	// COMSPEC may be another shell with other quoting rules.
	system, err := windows.GetSystemDirectory()
	if err != nil {
		return err
	}
	shell := filepath.Join(system, "cmd.exe")
	line, err := commandLine(shell, path, isShimFile(path), cmd.Args[1:])
	if err != nil {
		return err
	}
	if cmd.SysProcAttr == nil {
		cmd.SysProcAttr = new(syscall.SysProcAttr)
	}
	cmd.Path, cmd.SysProcAttr.CmdLine = shell, line
	return nil
}

// batchFile returns the absolute path of the batch file that starting path in dir would run, if it
// is one.
func batchFile(path, dir string) (string, bool) {
	switch strings.ToLower(filepath.Ext(path)) {
	case ".exe", ".com":
		return "", false
	}
	switch {
	case filepath.VolumeName(path) != "":
	case path != "" && os.IsPathSeparator(path[0]):
		path = filepath.VolumeName(dir) + path
	default:
		path = filepath.Join(dir, path)
	}
	path, err := filepath.Abs(path)
	if err != nil {
		return "", false
	}
	if !Is(path) {
		if path, err = exec.LookPath(path); err != nil || !Is(path) { // the extension is optional
			return "", false
		}
	}
	info, err := os.Stat(path)
	return path, err == nil && !info.IsDir() // Start has a better error than cmd.exe
}

// isShimFile reports whether the file is a shim. An unreadable file is not one.
func isShimFile(path string) bool {
	f, err := os.Open(path)
	if err != nil {
		return false
	}
	defer f.Close()
	script, err := io.ReadAll(io.LimitReader(f, maxShim+1))
	return err == nil && isShim(script)
}
