package cli

import (
	"fmt"
	"io"
	"path/filepath"

	"mcpwire/capture"
	"mcpwire/internal/proxy/tap"
	"mcpwire/internal/trace/captures"
	livesock "mcpwire/internal/trace/live"
)

// A tapRecording is what a tap records to: a file, viewers, or both.
type tapRecording struct {
	writer *capture.Writer  // nil: neither
	file   *capture.File    // nil: viewers only
	live   *livesock.Server // nil: the file only
}

// liveRestart lets viewers have the server started again, if the tap does that. It returns what asks for it; nil if it does not.
func liveRestart(r *tap.Restart) func() {
	if r == nil {
		return nil
	}
	wish := make(chan string, 1)
	r.Trigger = wish
	return func() {
		select {
		case wish <- "a viewer asked for it":
		default: // somebody has asked already
		}
	}
}

// record begins the capture that the flags ask for, and shows it to viewers. If the usual folder cannot be used, a word on stderr is all: a server that worked
// before shall work with tap. That there are no viewers is worth a word with -v only.
func (f *tapFlags) record(e *env, transport, name, serverURL string, restart func(), say func(string)) (*tapRecording, error) {
	server := livesock.NewServer(&livesock.Options{Restart: restart})
	opts := &capture.Options{Tool: "mcpwire " + Version, Transport: transport, Name: name, URL: serverURL, Unredacted: f.redact == "off", Tee: server}
	opts.Notice = e.notice
	file, err := f.create(e, name, opts, say)
	if err != nil {
		return nil, err
	}
	rec := &tapRecording{file: file}
	if file != nil {
		rec.writer = file.Writer
	} else {
		opts.Want = server.Wants
		rec.writer = capture.NewWriter(io.Discard, opts)
	}
	if err := rec.show(server, name, transport); err != nil {
		say("it cannot be watched: " + err.Error())
		if file == nil {
			rec.writer.Close() // it would be for nobody
			rec.writer = nil
		}
	}
	return rec, nil
}

// show lets viewers come. If it returns an error, there will be none.
func (r *tapRecording) show(server *livesock.Server, name, transport string) error {
	hello := livesock.Greeting{Capture: r.writer.ID(), Name: clipLine(name, 200), Transport: transport}
	if r.file != nil {
		if path, err := filepath.Abs(r.file.Name()); err == nil {
			hello.File = path
		}
	}
	dir, err := livesock.Dir()
	if err == nil {
		err = server.Start(dir, hello)
	}
	if err != nil {
		server.Close()
		return err
	}
	r.live = server
	return nil
}

// create makes the file that the flags ask for; nil if they ask for none, or if it is the usual one and cannot be made.
func (f *tapFlags) create(e *env, name string, opts *capture.Options, say func(string)) (*capture.File, error) {
	if f.noRecord {
		return nil, nil
	}
	if f.output != "" {
		rec, err := capture.Create(f.output, opts)
		if err != nil {
			return nil, fail(exitUnexpected, "output", "name a file that does not exist, in a folder that does", err)
		}
		return rec, nil
	}
	dir, err := captures.Dir()
	var rec *capture.File
	if err == nil {
		rec, err = captures.Create(dir, name, opts)
	}
	if err != nil {
		fmt.Fprintln(e.stderr, "mcpwire: nothing is recorded: "+safeLine(err.Error()))
		return nil, nil
	}
	say("recording to " + rec.Name())
	return rec, nil
}

// notice tells what has happened to the file of a capture.
func (e *env) notice(err error) {
	fmt.Fprintln(e.stderr, "mcpwire: "+safeLine(err.Error()))
}

// finish ends the capture, and lets viewers see the end.
func (r *tapRecording) finish(e *env) {
	switch {
	case r.file != nil:
		if err := r.file.Close(); err != nil {
			fmt.Fprintln(e.stderr, "mcpwire: the capture is not complete: "+safeLine(err.Error()))
		}
	case r.writer != nil:
		r.writer.Close() // nothing is written that could fail
	}
	if r.live != nil {
		r.live.Close() // whatever is left of the socket is removed by the next who looks
	}
}
