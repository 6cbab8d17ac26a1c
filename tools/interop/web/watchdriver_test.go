package web

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"sync"
	"testing"
	"time"

	"mcpwire/internal/test/buffer"
)

// A function is a function of the test that a scene calls, for example to send lines to a tap.
type function func(args json.RawMessage) (any, error)

// A driver is the process that runs watch.mjs, which drives a browser through scenes. It exchanges
// lines of JSON with the tests: a test sends the name of a scene, the scene calls functions of the
// test, and at the end it sends its failures.
type driver struct {
	cmd *exec.Cmd
	in  io.WriteCloser
	out *bufio.Scanner
	log buffer.Buffer
}

// A driverLine is a line from the driver.
type driverLine struct {
	Call     int             `json:"call"` // the number of a call of a function; 0 ends the scene
	Function string          `json:"function"`
	Args     json.RawMessage `json:"args"`
	Notes    []string        `json:"notes"`
	Failures []string        `json:"failures"`
}

// drivers has the driver that all tests share. The first test that needs it starts it.
var drivers driverSet

type driverSet struct {
	mu  sync.Mutex
	one *driver
}

func (s *driverSet) get(t *testing.T) *driver {
	t.Helper()
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.one == nil {
		s.one = startDriver(t)
	}
	return s.one
}

func (s *driverSet) stop() {
	d := s.one
	if d == nil {
		return
	}
	d.in.Close()
	timer := time.AfterFunc(10*time.Second, func() { d.cmd.Process.Kill() })
	d.cmd.Wait()
	timer.Stop()
}

func startDriver(t *testing.T) *driver {
	t.Helper()
	path, err := exec.LookPath("chromium")
	if err != nil {
		missing(t, "Chromium is not installed: %v", err)
	}
	d := &driver{cmd: exec.Command(node(t, 22), "watch.mjs", path)}
	d.cmd.Stderr = &d.log
	d.cmd.WaitDelay = time.Second // the browser inherits the pipe
	out, err := d.cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if d.in, err = d.cmd.StdinPipe(); err != nil {
		t.Fatal(err)
	}
	if err := d.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	d.out = bufio.NewScanner(out)
	d.out.Buffer(nil, 16<<20)
	return d
}

// runScene runs a scene in the driver, and reports its failures. with is the scene's input,
// functions are the functions that it may call. The scene writes files to a directory of the test.
func (d *driver) runScene(t *testing.T, scene string, with map[string]any, functions map[string]function) {
	t.Helper()
	request := map[string]any{"scene": scene, "with": with, "dir": t.TempDir(), "shots": os.Getenv("WATCH_SHOTS")}
	if err := d.send(request); err != nil {
		t.Fatalf("send to the driver: %v\n%s", err, d.log.String())
	}
	stuck := time.AfterFunc(2*time.Minute, func() { d.cmd.Process.Kill() })
	defer stuck.Stop()
	for d.out.Scan() {
		var line driverLine
		if err := json.Unmarshal(d.out.Bytes(), &line); err != nil {
			t.Fatalf("decode line of the driver %q: %v", d.out.Text(), err)
		}
		if line.Call == 0 {
			for _, n := range line.Notes {
				t.Log(n)
			}
			for _, f := range line.Failures {
				t.Error(f)
			}
			return
		}
		reply := map[string]any{"reply": line.Call}
		if f := functions[line.Function]; f == nil {
			reply["error"] = fmt.Sprintf("unknown function %q", line.Function)
		} else if value, err := f(line.Args); err != nil {
			reply["error"] = err.Error()
		} else {
			reply["value"] = value
		}
		if err := d.send(reply); err != nil {
			t.Fatalf("send to the driver: %v\n%s", err, d.log.String())
		}
	}
	t.Fatalf("the driver exited: %v\n%s", d.out.Err(), lastLines(d.log.String(), 30))
}

// send sends a line to the driver.
func (d *driver) send(v any) error {
	line, err := json.Marshal(v)
	if err != nil {
		return err
	}
	_, err = d.in.Write(append(line, '\n'))
	return err
}
