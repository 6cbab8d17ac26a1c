package record

import (
	"errors"
	"fmt"

	"mcpwire/capture"
	"mcpwire/cmd/internal/cli/kit"
	"mcpwire/cmd/internal/exit"
	"mcpwire/cmd/internal/proxy/intercept"
	"mcpwire/cmd/internal/proxy/recording"
	"mcpwire/cmd/internal/proxy/tap"
	"mcpwire/cmd/internal/text/safe"
	"mcpwire/cmd/internal/trace/captures"
	livesock "mcpwire/cmd/internal/trace/live"
)

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
func (f *tapFlags) record(e *kit.Env, of *recordingOf, logf func(string)) (*recording.Recording, error) {
	live := &livesock.Options{Restart: of.restart}
	if of.breakpoints != nil {
		live.Decide = of.breakpoints.Decide
	}
	server := livesock.NewServer(live)
	if of.breakpoints != nil {
		of.breakpoints.Publish(server.PublishIntercepted)
	}
	opts := &capture.Options{Transport: of.transport, Name: of.name, URL: of.url, Redact: recording.Redaction(f.redact), Notice: recording.Notice(e.Stderr)}
	create := func(opts *capture.Options) (*capture.File, error) { return f.create(e, opts, logf) }
	return recording.Start(server, opts, create, func(err error) { logf("watching is not possible: " + err.Error()) })
}

// checkViewers finishes the capture and returns an error if messages are held and nobody could see
// them.
func checkViewers(r *recording.Recording, e *kit.Env, b *intercept.Breakpoints) error {
	if b == nil || r.CanShow() {
		return nil
	}
	r.Finish(e.Stderr)
	return exit.Fail(exit.Unexpected, "intercept", "allow this user to create sockets in the folder of mcpwire, or leave --intercept out", errors.New("held messages could not be shown: viewers cannot connect"))
}

// create creates the file that the flags ask for. It returns nil if they ask for none, or if the
// default file can't be created.
func (f *tapFlags) create(e *kit.Env, opts *capture.Options, logf func(string)) (*capture.File, error) {
	if f.noRecord {
		return nil, nil
	}
	if f.output != "" {
		return recording.CreateFile(e.Stderr, f.output, opts)
	}
	dir, err := captures.Dir()
	var rec *capture.File
	if err == nil {
		rec, err = captures.Create(dir, opts.Name, opts)
	}
	if err != nil {
		fmt.Fprintln(e.Stderr, "mcpwire: nothing is recorded: "+safe.Line(err.Error()))
		return nil, nil
	}
	logf("recording to " + rec.Name())
	return rec, nil
}
