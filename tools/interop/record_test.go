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

// recordVerb as the first argument makes the test binary a recording proxy:
//
//	interop.test record DIR -- COMMAND...
const recordVerb = "record"

// An event is one line of a transcript.
type event struct {
	Kind string `json:"kind"` // one of the kinds below
	Line []byte `json:"line,omitempty"`
	Code int    `json:"code,omitempty"`
	Text string `json:"text,omitempty"`
}

const (
	started    = "started"    // the server runs with process id Code
	toServer   = "to server"  // the host wrote Line
	toHost     = "to host"    // the server wrote Line
	inputEnds  = "input ends" // the host closed the server's standard input
	signaled   = "signaled"   // the host sent the signal Text
	exited     = "exited"     // the server exited with status Code
	incomplete = "incomplete" // the transcript is incomplete; Text is the error
)

// A recorder appends events to a file. It writes an event under a lock before the message is
// forwarded, so the order in the file is causal.
type recorder struct {
	mu  sync.Mutex
	enc *json.Encoder
}

func (r *recorder) add(e event) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if err := r.enc.Encode(e); err != nil {
		fmt.Fprintln(os.Stderr, "record:", err)
	}
}

// pass copies lines from src to dst, and records each first.
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

// recordMain runs the command in args[2:] between the host's pipes, writes the transcript to a new
// file in the directory args[0] and returns the exit status.
func recordMain(args []string) int {
	fail := func(err error) int {
		fmt.Fprintln(os.Stderr, "record:", err)
		return 125
	}
	if len(args) < 3 || args[1] != "--" {
		return fail(errors.New("usage: record DIR -- COMMAND"))
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
	// Register before Start: an early signal must not end this process.
	signals := make(chan os.Signal, 8)
	signal.Notify(signals, syscall.SIGTERM, syscall.SIGINT)
	if err := cmd.Start(); err != nil {
		return fail(err)
	}
	rec.add(event{Kind: started, Code: cmd.Process.Pid})
	go func() {
		for s := range signals {
			rec.add(event{Kind: signaled, Text: s.String()})
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

// transcripts returns the transcripts of the processes that were started for s, in no particular
// order. The host must have waited for its processes.
func (s *recordedServer) transcripts() [][]event {
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
