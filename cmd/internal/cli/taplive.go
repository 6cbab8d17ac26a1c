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

// startRecording starts a recording in the file that create returns, or without one only for
// viewers, which connect to server. The writer is nil if there is no file and they cannot connect;
// unwatched gets the reason why they cannot. It completes opts.
func startRecording(server *livesock.Server, opts *capture.Options, create func(*capture.Options) (*capture.File, error), unwatched func(error)) (*tapRecording, error) {
	rec := &tapRecording{hooks: hooks.Writer[capture.Event]{Tee: server}}
	opts.Tool, opts.Hooks = "mcpwire "+Version, &rec.hooks
	file, err := create(opts)
	if err != nil {
		return nil, outputError(err)
	}
	if rec.file = file; file != nil {
		rec.writer = file.Writer
	} else {
		rec.hooks.Want = server.Wants
		rec.writer = capture.NewWriter(io.Discard, opts)
	}
	if err := rec.show(server, opts.Name, opts.Transport); err != nil {
		unwatched(err)
		if file == nil {
			rec.writer.Close() // nobody would see it
			rec.writer = nil
		}
	}
	return rec, nil
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
	opts := &capture.Options{Transport: of.transport, Name: of.name, URL: of.url, Redact: redaction(f.redact), Notice: notice(e.stderr)}
	create := func(opts *capture.Options) (*capture.File, error) { return f.create(e, opts, logf) }
	return startRecording(server, opts, create, func(err error) { logf("watching is not possible: " + err.Error()) })
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

// canShow reports if viewers can connect.
func (r *tapRecording) canShow() bool { return r.live != nil }

// checkViewers finishes the capture and returns an error if messages are held and nobody could see
// them.
func checkViewers(r *tapRecording, e *env, b *intercept.Breakpoints) error {
	if b == nil || r.canShow() {
		return nil
	}
	r.finish(e.stderr)
	return fail(exitUnexpected, "intercept", "allow this user to create sockets in the folder of mcpwire, or leave --intercept out", errors.New("held messages could not be shown: viewers cannot connect"))
}

// create creates the file that the flags ask for. It returns nil if they ask for none, or if the
// default file can't be created.
func (f *tapFlags) create(e *env, opts *capture.Options, logf func(string)) (*capture.File, error) {
	if f.noRecord {
		return nil, nil
	}
	if f.output != "" {
		return createFile(e.stderr, f.output, opts)
	}
	dir, err := captures.Dir()
	var rec *capture.File
	if err == nil {
		rec, err = captures.Create(dir, opts.Name, opts)
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

// notice returns a function that prints a problem with the file of a capture.
func notice(stderr io.Writer) func(error) {
	return func(err error) { fmt.Fprintln(stderr, "mcpwire: "+safeLine(err.Error())) }
}

// createFile creates the file of a capture. If it exists, as when a host starts a server again, the
// name gets a number, and createFile prints the name.
func createFile(stderr io.Writer, name string, opts *capture.Options) (*capture.File, error) {
	f, err := captures.CreateFile(name, opts)
	if err == nil && f.Name() != name {
		fmt.Fprintf(stderr, "mcpwire: %s exists: recording to %s\n", safeLine(name), safeLine(f.Name()))
	}
	return f, err
}

// finish ends the capture and the viewers' streams.
func (r *tapRecording) finish(stderr io.Writer) {
	switch {
	case r.file != nil:
		if err := r.file.Close(); err != nil {
			fmt.Fprintln(stderr, "mcpwire: the capture is not complete: "+safeLine(err.Error()))
		}
		if lost := r.file.Lost(); lost > 0 {
			fmt.Fprintf(stderr, "mcpwire: %s lost: writing to %s was too slow or failed\n", plural.Of(int(lost), "event"), safeLine(r.file.Name()))
		}
	case r.writer != nil:
		r.writer.Close() // discarded: can't fail
	}
	if r.live != nil {
		// The next viewer removes what remains of the socket.
		r.live.Close()
	}
}
