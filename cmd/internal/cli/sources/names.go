package sources

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"mcpwire/capture"
	"mcpwire/cmd/internal/cli/kit"
	"mcpwire/cmd/internal/exit"
	"mcpwire/cmd/internal/text/safe"
	"mcpwire/cmd/internal/trace"
	"mcpwire/cmd/internal/trace/captures"
)

// Prefixes that tell a server's capture from the configured server of the same name.
const (
	OfCapture = "capture:"
	OfLive    = "live:"
)

// Args returns the files that arguments name: paths, servers or files in the captures
// folder, or "-" for standard input. Without arguments it returns the newest captures there, the
// oldest of them first. It prints to standard error which captures it chose.
func Args(e *kit.Env, command string, args []string) ([]string, error) {
	if len(args) == 0 {
		newest, err := Newest()
		if err != nil {
			return nil, exit.Fail(exit.Unexpected, "no_capture", "record one: mcpwire tap -- CMD…; or name a file: mcpwire "+command+" FILE", err)
		}
		var paths, names []string
		for _, c := range slices.Backward(newest) {
			paths = append(paths, c.Path)
			names = append(names, safe.Clip(cmp.Or(c.Name, filepath.Base(c.Path)), 100))
		}
		if len(newest) == 1 {
			fmt.Fprintf(e.Stderr, "reading %s, the newest capture (mcpwire captures lists them)\n", trace.Escape(paths[0]))
		} else {
			fmt.Fprintf(e.Stderr, "reading the newest %d captures, of the same time: %s (mcpwire captures lists them)\n", len(paths), strings.Join(names, ", "))
		}
		return paths, nil
	}
	var paths []string
	for _, a := range args {
		path, err := Arg(e, command, a)
		if err != nil {
			return nil, err
		}
		paths = append(paths, path)
	}
	return paths, nil
}

// Newest returns the newest captures in the folder of the user, see [captures.Newest].
func Newest() ([]captures.Info, error) {
	dir, err := captures.Dir()
	if err != nil {
		return nil, err
	}
	return captures.Newest(dir)
}

// Arg returns the file that one argument names. It looks in the captures folder only if the
// argument is not the path of a file.
func Arg(e *kit.Env, command, arg string) (string, error) {
	info, err := os.Stat(arg)
	// A folder may have the name of a server.
	isFolder := err == nil && info.IsDir()
	if arg == "-" || err == nil && !isFolder {
		return arg, nil
	}
	if name, ok := strings.CutPrefix(arg, OfLive); ok {
		return "", exit.Usagef("%s: live:%s is a server, not a capture (capture:%[2]s is its newest capture)", firstWord(command), safe.Line(name))
	}
	name := strings.TrimPrefix(arg, OfCapture)
	dir, err := captures.Dir()
	var found captures.Info
	if err == nil {
		found, err = captures.Find(dir, name)
	}
	if err != nil && isFolder {
		err = fmt.Errorf("%s is a folder, and no capture has that name: %w", trace.Escape(arg), captures.ErrNotFound)
	}
	if err != nil {
		return "", exit.Fail(exit.Unexpected, "no_capture", "mcpwire captures lists them", err)
	}
	if found.Name == name {
		fmt.Fprintf(e.Stderr, "reading %s, the newest capture of %s\n", trace.Escape(found.Path), safe.Line(name))
	}
	return found.Path, nil
}

func firstWord(s string) string {
	s, _, _ = strings.Cut(s, " ")
	return s
}

// capturePoll is how often Await looks for a capture.
const capturePoll = 200 * time.Millisecond

// Await is like Args, but waits until there is a capture or ctx ends. Without args,
// it waits for one that is not closed yet, or newer. It is for commands that follow a capture.
func Await(ctx context.Context, e *kit.Env, command string, args []string) ([]string, error) {
	old := ""
	if len(args) == 0 {
		old = newestClosed()
	}
	if len(args) > 1 || len(args) == 1 && args[0] == "-" || captureThere(args, old) {
		return Args(e, command, args)
	}
	what := "a capture"
	if len(args) > 0 {
		what = "the capture " + safe.Clip(args[0], 200)
	}
	if len(args) == 0 || !isCapturePath(args[0]) {
		dir, err := captures.Dir()
		if err != nil {
			return Args(e, command, args)
		}
		what += " in " + trace.Escape(dir)
	}
	fmt.Fprintf(e.Stderr, "waiting for %s; a tap records one when a host starts it\n", what)
	ticker := time.NewTicker(capturePoll)
	defer ticker.Stop()
	for !captureThere(args, old) {
		select {
		case <-ticker.C:
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
	return Args(e, command, args)
}

// newestClosed returns the path of the newest capture if all of the newest ones are closed, so that
// there is nothing to follow. Otherwise it returns "".
func newestClosed() string {
	newest, err := Newest()
	if err != nil || slices.ContainsFunc(newest, func(c captures.Info) bool { return c.State != captures.Complete }) {
		return ""
	}
	return newest[0].Path
}

// captureThere reports whether waiting is useless: the capture exists, or another error occurred.
// Without args, the capture at the path old does not count.
func captureThere(args []string, old string) bool {
	var err error
	switch {
	case len(args) == 0:
		var newest []captures.Info
		if newest, err = Newest(); err == nil && newest[0].Path == old {
			return false
		}
	case isCapturePath(args[0]):
		_, err = os.Stat(args[0])
		return !errors.Is(err, os.ErrNotExist)
	case strings.HasPrefix(args[0], OfLive):
		return true
	default:
		if _, err := os.Stat(args[0]); err == nil {
			return true
		}
		var dir string
		if dir, err = captures.Dir(); err == nil {
			_, err = captures.Find(dir, strings.TrimPrefix(args[0], OfCapture))
		}
	}
	return !errors.Is(err, captures.ErrNotFound)
}

// isCapturePath reports whether an argument must be a path: it contains a separator or the suffix
// of captures.
func isCapturePath(arg string) bool {
	return strings.ContainsRune(arg, filepath.Separator) || strings.Contains(arg, capture.Suffix)
}

// IsRecorded reports whether there is a capture of a server called name.
func IsRecorded(name string) bool {
	dir, err := captures.Dir()
	if err != nil {
		return false
	}
	_, err = captures.Find(dir, name)
	return err == nil
}
