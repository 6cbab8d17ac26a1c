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

// Prepare has cmd start cmd.exe with arguments quoted for it if cmd is of a batch file, and leaves
// other commands alone. Path, Args, Dir and SysProcAttr must be set before, and not be changed
// afterwards. An error is [ErrArguments], or says that Windows does not know where cmd.exe is.
func Prepare(cmd *exec.Cmd) error {
	if cmd.Err != nil || len(cmd.Args) == 0 {
		return nil // Start returns an error, or there is nothing to quote
	}
	path, ok := batchFile(cmd.Path, cmd.Dir)
	if !ok {
		return nil
	}
	// Not COMSPEC: it may be another shell, which reads quotes in another way.
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

// batchFile returns the whole path of the batch file that starting path in dir would run, if it is one.
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
		if path, err = exec.LookPath(path); err != nil || !Is(path) { // the extension may be left out
			return "", false
		}
	}
	info, err := os.Stat(path)
	return path, err == nil && !info.IsDir() // otherwise Start says it better than cmd.exe
}

// isShimFile reads the batch file. One that cannot be read does not count as a shim.
func isShimFile(path string) bool {
	f, err := os.Open(path)
	if err != nil {
		return false
	}
	defer f.Close()
	script, err := io.ReadAll(io.LimitReader(f, maxShim+1))
	return err == nil && isShim(script)
}
