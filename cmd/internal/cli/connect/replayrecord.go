package connect

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"mcpwire/capture"
	"mcpwire/cmd/internal/build"
	"mcpwire/cmd/internal/exit"
	"mcpwire/cmd/internal/playback/replay"
	"mcpwire/cmd/internal/playback/resend"
	"mcpwire/cmd/internal/proxy/recording"
	"mcpwire/cmd/internal/text/safe"
	"mcpwire/cmd/internal/trace/captures"
	"mcpwire/internal/proc/inuse"
)

// A replayRecorder records the replay for --output or --update, or discards it.
type replayRecorder struct {
	f  *replayFlags
	to *resend.Origin
	// path is the file to write. "" discards the recording.
	path string
	// final is the file that --update replaces. "" replaces none.
	final string
	mode  os.FileMode
	count int
}

func newReplayRecorder(f *replayFlags, to *resend.Origin) (*replayRecorder, error) {
	r := &replayRecorder{f: f, to: to, path: f.output}
	if f.output != "" {
		if _, err := os.Lstat(f.output); err == nil {
			return nil, exit.Fail(exit.Unexpected, "capture", "--output needs a file that does not exist yet", fmt.Errorf("%s exists", safe.Line(f.output)))
		}
	}
	if !f.update {
		return r, nil
	}
	final, err := filepath.EvalSymlinks(f.path)
	if err != nil {
		return nil, err
	}
	info, err := os.Stat(final)
	if err != nil {
		return nil, err
	}
	if c, err := captures.Stat(final); err == nil && c.State == captures.Writing {
		return nil, exit.Fail(exit.Unexpected, "capture", "", fmt.Errorf("%s is still being written", safe.Line(final)))
	}
	r.final, r.mode = final, info.Mode().Perm()
	// Same directory, so that a rename can replace the file; same extension, which decides the
	// compression.
	dir, base := filepath.Split(final)
	r.path = filepath.Join(dir, ".replay-"+strconv.Itoa(os.Getpid())+"-"+base)
	return r, nil
}

// next returns the writer for the next session and a function that closes it.
func (r *replayRecorder) next(rec *replay.Recording) (*capture.Writer, func() error, error) {
	r.count++
	opts := &capture.Options{
		Tool: "mcpwire " + build.Version(), Transport: r.to.Transport, Name: rec.Name, URL: r.to.URL, Redact: recording.Redaction(r.f.redact), Append: r.count > 1,
	}
	if r.path == "" {
		w := capture.NewWriter(io.Discard, opts)
		return w, w.Close, nil
	}
	if opts.Append && (strings.HasSuffix(r.path, ".gz") || strings.HasSuffix(r.path, ".zst")) {
		return nil, nil, exit.Fail(exit.Usage, "usage", "select one with --session, or record to an uncompressed file", errors.New("several sessions cannot be recorded in a compressed file"))
	}
	file, err := capture.Create(r.path, opts)
	if err != nil {
		return nil, nil, exit.Fail(exit.Unexpected, "capture", "", err)
	}
	return file.Writer, file.Close, nil
}

// finish replaces the recording if --update is set and every request was sent and answered. It
// reports whether it did.
func (r *replayRecorder) finish(sum *replay.Summary) (bool, error) {
	if r.final == "" || !sum.Completed() {
		return false, nil
	}
	if err := os.Chmod(r.path, r.mode); err != nil {
		return false, err
	}
	if err := inuse.Rename(r.path, r.final); err != nil {
		return false, err
	}
	r.path = ""
	return true, nil
}

// abandon removes the temporary file unless it has replaced the recording.
func (r *replayRecorder) abandon() {
	if r.final != "" && r.path != "" {
		_ = os.Remove(r.path) // it may not exist
	}
}
