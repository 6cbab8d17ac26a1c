package cli

import (
	"errors"
	"fmt"
	"io"
	"path/filepath"

	"mcpwire/capture"
	"mcpwire/cmd/internal/proxy/intercept"
	"mcpwire/cmd/internal/proxy/tap"
	"mcpwire/cmd/internal/trace/captures"
	livesock "mcpwire/cmd/internal/trace/live"
	"mcpwire/internal/base/hooks"
	"mcpwire/internal/text/plural"
)

// A tapRecording is the destination of a tap's recording: a file, viewers, or both.
type tapRecording struct {
	// writer is nil if there is neither a file nor viewers.
	writer *capture.Writer
	// hooks are those of writer.
	hooks hooks.Writer[capture.Event]
	// file is nil if there are only viewers.
	file *capture.File
	// live is nil if there is only the file.
	live *livesock.Server
}

// isWatched reports if there is a file or a viewer, or if the first viewer is to get what happens
// now. There must be a writer.
func (r *tapRecording) isWatched() bool { return r.hooks.Wants(0) }

// liveRestart lets viewers restart the server, if the tap restarts it. It returns the function that
// requests a restart, or nil.
func liveRestart(r *tap.Restart) func() {
	if r == nil {
		return nil
	}
	requests := make(chan string, 1)
	r.Trigger = requests
	return func() {
		select {
		case requests <- "a viewer requested it":
		default: // a request is pending
		}
	}
}

// recordingOf is what a tap records.
type recordingOf struct {
	transport capture.Transport
	// name is the name of the server.
	name string
	// url is the URL of a server on HTTP.
	url string
	// restart restarts the server. Nil means that the tap cannot.
	restart func()
	// breakpoints hold messages. Nil means that none are held.
	breakpoints *intercept.Breakpoints
}

// record starts the capture that the flags ask for and shows it to viewers. If the default folder
// can't be used, it only prints a note, because a server that worked before must work with tap. If
// viewers can't connect, it prints a note with -v only.
func (f *tapFlags) record(e *env, of *recordingOf, logf func(string)) (*tapRecording, error) {
	live := &livesock.Options{Restart: of.restart}
	if of.breakpoints != nil {
		live.Decide = of.breakpoints.Decide
	}
	server := livesock.NewServer(live)
	if of.breakpoints != nil {
		of.breakpoints.Publish(server.PublishIntercepted)
	}
	name := of.name
	rec := &tapRecording{hooks: hooks.Writer[capture.Event]{Tee: server}}
	opts := &capture.Options{Tool: "mcpwire " + Version, Transport: of.transport, Name: name, URL: of.url, Redact: redaction(f.redact), Notice: e.notice, Hooks: &rec.hooks}
	file, err := f.create(e, name, opts, logf)
	if err != nil {
		return nil, err
	}
	rec.file = file
	if file != nil {
		rec.writer = file.Writer
	} else {
		rec.hooks.Want = server.Wants
		rec.writer = capture.NewWriter(io.Discard, opts)
	}
	if err := rec.show(server, name, of.transport); err != nil {
		logf("watching is not possible: " + err.Error())
		if file == nil {
			rec.writer.Close() // nobody would see it
			rec.writer = nil
		}
	}
	return rec, nil
}

// show lets viewers connect. If it returns an error, none can.
func (r *tapRecording) show(server *livesock.Server, name string, transport capture.Transport) error {
	greeting := livesock.Greeting{Capture: r.writer.ID(), Name: clipLine(name, 200), Transport: transport}
	if r.file != nil {
		if path, err := filepath.Abs(r.file.Name()); err == nil {
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

// checkViewers finishes the capture and returns an error if messages are held and nobody could see
// them.
func (r *tapRecording) checkViewers(e *env, b *intercept.Breakpoints) error {
	if b == nil || r.live != nil {
		return nil
	}
	r.finish(e)
	return fail(exitUnexpected, "intercept", "allow this user to create sockets in the folder of mcpwire, or leave --intercept out", errors.New("held messages could not be shown: viewers cannot connect"))
}

// create creates the file that the flags ask for. It returns nil if they ask for none, or if the
// default file can't be created.
func (f *tapFlags) create(e *env, name string, opts *capture.Options, logf func(string)) (*capture.File, error) {
	if f.noRecord {
		return nil, nil
	}
	if f.output != "" {
		rec, err := captures.CreateFile(f.output, opts)
		if err != nil {
			return nil, outputError(err)
		}
		e.noteNumbered(f.output, rec)
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
	logf("recording to " + rec.Name())
	return rec, nil
}

// redaction returns the redaction that a flag --redact asks for.
func redaction(flag string) *capture.Redaction {
	if flag == "off" {
		return &capture.Redaction{Off: true}
	}
	return nil
}

// notice prints a problem with the file of a capture.
func (e *env) notice(err error) {
	fmt.Fprintln(e.stderr, "mcpwire: "+safeLine(err.Error()))
}

// noteNumbered says where a capture is whose file existed: hosts start a server more than once.
func (e *env) noteNumbered(name string, f *capture.File) {
	if f.Name() != name {
		fmt.Fprintf(e.stderr, "mcpwire: %s exists: recording to %s\n", safeLine(name), safeLine(f.Name()))
	}
}

// finish ends the capture and the viewers' streams.
func (r *tapRecording) finish(e *env) {
	switch {
	case r.file != nil:
		if err := r.file.Close(); err != nil {
			fmt.Fprintln(e.stderr, "mcpwire: the capture is not complete: "+safeLine(err.Error()))
		}
		if lost := r.file.Lost(); lost > 0 {
			fmt.Fprintf(e.stderr, "mcpwire: %s lost: writing to %s was too slow or failed\n", plural.Of(int(lost), "event"), safeLine(r.file.Name()))
		}
	case r.writer != nil:
		r.writer.Close() // discarded: can't fail
	}
	if r.live != nil {
		// The next viewer removes what remains of the socket.
		r.live.Close()
	}
}
