// Package recording records the traffic of a program between clients and servers to a file, to
// viewers, or to both.
package recording

import (
	"fmt"
	"io"
	"log/slog"
	"path/filepath"

	"mcpwire/capture"
	"mcpwire/cmd/internal/build"
	"mcpwire/cmd/internal/exit"
	"mcpwire/cmd/internal/text/safe"
	"mcpwire/cmd/internal/trace/captures"
	livesock "mcpwire/cmd/internal/trace/live"
	"mcpwire/internal/base/hooks"
	"mcpwire/internal/text/plural"
)

// Proxy starts a capture of a proxy in a file, or else in a new file in dir, and lets viewers
// watch it. With neither, there are only viewers, and the writer is nil if they cannot connect. It
// completes opts.
func Proxy(stderr io.Writer, opts *capture.Options, name, dir string, log *slog.Logger) (*Recording, error) {
	opts.Notice = Notice(stderr)
	create := func(opts *capture.Options) (f *capture.File, err error) {
		switch {
		case name != "":
			f, err = CreateFile(stderr, name, opts)
		case dir != "":
			f, err = captures.Create(dir, opts.Name, opts)
		}
		if f != nil {
			log.Debug("recording", "file", f.Name())
		}
		return f, err
	}
	return Start(livesock.NewServer(nil), opts, create, func(err error) { log.Debug("watching is not possible", "error", err) })
}

// CreateError returns the error for a capture that cannot be created.
func CreateError(err error) error {
	return exit.Fail(exit.Unexpected, "output", "use a file in an existing folder", err)
}

// A Recording is the destination of a tap's recording: a file, viewers, or both.
type Recording struct {
	// Writer is nil if there is neither a file nor viewers.
	Writer *capture.Writer
	// Hooks are those of Writer.
	Hooks hooks.Writer[capture.Event]
	// File is nil if there are only viewers.
	File *capture.File
	// live is nil if there is only the file.
	live *livesock.Server
}

// Start starts a recording in the file that create returns, or without one only for
// viewers, which connect to server. The writer is nil if there is no file and they cannot connect;
// unwatched gets the reason why they cannot. It completes opts.
func Start(server *livesock.Server, opts *capture.Options, create func(*capture.Options) (*capture.File, error), unwatched func(error)) (*Recording, error) {
	rec := &Recording{Hooks: hooks.Writer[capture.Event]{Tee: server}}
	opts.Tool, opts.Hooks = "mcpwire "+build.Version(), &rec.Hooks
	file, err := create(opts)
	if err != nil {
		return nil, CreateError(err)
	}
	if rec.File = file; file != nil {
		rec.Writer = file.Writer
	} else {
		rec.Hooks.Want = server.Wants
		rec.Writer = capture.NewWriter(io.Discard, opts)
	}
	if err := rec.show(server, opts.Name, opts.Transport); err != nil {
		unwatched(err)
		if file == nil {
			rec.Writer.Close() // nobody would see it
			rec.Writer = nil
		}
	}
	return rec, nil
}

// IsWatched reports if there is a file or a viewer, or if the first viewer is to get what happens
// now. There must be a writer.
func (r *Recording) IsWatched() bool { return r.Hooks.Wants(0) }

// show lets viewers connect. If it returns an error, none can.
func (r *Recording) show(server *livesock.Server, name string, transport capture.Transport) error {
	greeting := livesock.Greeting{Capture: r.Writer.ID(), Name: safe.Clip(name, 200), Transport: transport}
	if r.File != nil {
		if path, err := filepath.Abs(r.File.Name()); err == nil {
			greeting.File = path
		}
	}
	dir, err := livesock.Dir()
	if err == nil {
		err = server.Start(dir, greeting)
	}
	if err != nil {
		server.Close()
		return err
	}
	r.live = server
	return nil
}

// CanShow reports if viewers can connect.
func (r *Recording) CanShow() bool { return r.live != nil }

// Redaction returns the redaction that a flag --redact asks for.
func Redaction(flag string) *capture.Redaction {
	if flag == "off" {
		return &capture.Redaction{Off: true}
	}
	return nil
}

// Notice returns a function that prints a problem with the file of a capture.
func Notice(stderr io.Writer) func(error) {
	return func(err error) { fmt.Fprintln(stderr, "mcpwire: "+safe.Line(err.Error())) }
}

// CreateFile creates the file of a capture. If it exists, as when a host starts a server again, the
// name gets a number, and CreateFile prints the name.
func CreateFile(stderr io.Writer, name string, opts *capture.Options) (*capture.File, error) {
	f, err := captures.CreateFile(name, opts)
	if err == nil && f.Name() != name {
		fmt.Fprintf(stderr, "mcpwire: %s exists: recording to %s\n", safe.Line(name), safe.Line(f.Name()))
	}
	return f, err
}

// Finish ends the capture and the viewers' streams.
func (r *Recording) Finish(stderr io.Writer) {
	switch {
	case r.File != nil:
		if err := r.File.Close(); err != nil {
			fmt.Fprintln(stderr, "mcpwire: the capture is not complete: "+safe.Line(err.Error()))
		}
		if lost := r.File.Lost(); lost > 0 {
			fmt.Fprintf(stderr, "mcpwire: %s lost: writing to %s was too slow or failed\n", plural.Of(int(lost), "event"), safe.Line(r.File.Name()))
		}
	case r.Writer != nil:
		r.Writer.Close() // discarded: can't fail
	}
	if r.live != nil {
		// The next viewer removes what remains of the socket.
		r.live.Close()
	}
}
