package interop

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"sync"
	"syscall"
	"testing"
)

// witnessVerb as the first argument makes the test binary a witness:
//
//	interop.test witness DIR -- COMMAND...
const witnessVerb = "witness"

// An event is one line of a transcript.
type event struct {
	Kind string `json:"kind"` // one of the kinds below
	Line []byte `json:"line,omitempty"`
	Code int    `json:"code,omitempty"`
	Text string `json:"text,omitempty"`
}

const (
	started    = "started"    // the server runs, with process id Code
	toServer   = "to server"  // Line, as the host wrote it
	toHost     = "to host"    // Line, as the server wrote it
	inputEnds  = "input ends" // the host closed the server's stdin
	signalled  = "signalled"  // the host sent the signal Text
	exited     = "exited"     // the server ended with exit status Code
	incomplete = "incomplete" // the transcript broke off: Text says why
)

// recorder appends events to a file. An event is written before its message is forwarded, under one
// lock, so that the order in the file is causal.
type recorder struct {
	mu  sync.Mutex
	enc *json.Encoder
}

func (r *recorder) add(e event) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if err := r.enc.Encode(e); err != nil {
		fmt.Fprintln(os.Stderr, "witness:", err)
	}
}

// pass copies lines from src to dst, recording each first.
func (r *recorder) pass(kind string, dst io.Writer, src io.Reader) {
	in := bufio.NewReader(src)
	for {
		line, err := in.ReadBytes('\n')
		if len(line) > 0 {
			r.add(event{Kind: kind, Line: line})
			if _, err := dst.Write(line); err != nil {
				return
			}
		}
		if err != nil {
			return
		}
	}
}

// witness runs the command in args[2:] between the host's pipes, writes the
// transcript to a new file in the folder args[0] and returns the exit status.
func witness(args []string) int {
	fail := func(err error) int {
		fmt.Fprintln(os.Stderr, "witness:", err)
		return 125
	}
	if len(args) < 3 || args[1] != "--" {
		return fail(errors.New("usage: witness DIR -- COMMAND"))
	}
	file, err := os.Create(filepath.Join(args[0], fmt.Sprintf("%d.transcript", os.Getpid())))
	if err != nil {
		return fail(err)
	}
	defer file.Close()
	rec := &recorder{enc: json.NewEncoder(file)}

	cmd := exec.Command(args[2], args[3:]...)
	cmd.Stderr = os.Stderr
	stdin, err := cmd.StdinPipe()
	if err != nil {
		return fail(err)
	}
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		return fail(err)
	}
	// Signals before Start: one that arrives early must not end the witness.
	signals := make(chan os.Signal, 8)
	signal.Notify(signals, syscall.SIGTERM, syscall.SIGINT)
	if err := cmd.Start(); err != nil {
		return fail(err)
	}
	rec.add(event{Kind: started, Code: cmd.Process.Pid})
	go func() {
		for s := range signals {
			rec.add(event{Kind: signalled, Text: s.String()})
			cmd.Process.Signal(s)
		}
	}()
	go func() {
		rec.pass(toServer, stdin, os.Stdin)
		rec.add(event{Kind: inputEnds})
		stdin.Close()
	}()
	rec.pass(toHost, os.Stdout, stdout)
	err = cmd.Wait()
	if exit := (*exec.ExitError)(nil); err != nil && !errors.As(err, &exit) {
		rec.add(event{Kind: incomplete, Text: err.Error()})
	}
	rec.add(event{Kind: exited, Code: cmd.ProcessState.ExitCode()})
	return cmd.ProcessState.ExitCode()
}

// transcripts returns what each process started for s wrote and read, in no
// particular order. The host must have waited for its processes.
func (s *witnessed) transcripts() [][]event {
	s.t.Helper()
	paths, err := filepath.Glob(filepath.Join(s.dir, "*.transcript"))
	if err != nil {
		s.t.Fatal(err)
	}
	var all [][]event
	for _, path := range paths {
		all = append(all, readTranscript(s.t, path))
	}
	return all
}

func readTranscript(t *testing.T, path string) []event {
	t.Helper()
	file, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	var events []event
	for dec := json.NewDecoder(file); ; {
		var e event
		switch err := dec.Decode(&e); err {
		case nil:
			events = append(events, e)
		case io.EOF:
			return events
		default:
			t.Fatalf("%s: %v", path, err)
		}
	}
}
