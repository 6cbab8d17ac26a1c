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
)

// A hand is a function of the test that a scene calls, for example to feed a tap.
type hand func(args json.RawMessage) (any, error)

// A driver is the Node.js that drives a browser through the scenes of
// watch.mjs. It and the tests talk in lines of JSON: the tests say which scene
// to play, the scene calls hands, and says in the end what did not hold.
type driver struct {
	cmd *exec.Cmd
	in  io.WriteCloser
	out *bufio.Scanner
	log logBuffer
}

// A driverLine is a line from the driver.
type driverLine struct {
	Call     int             `json:"call"` // a hand is called; 0 is that the scene is over
	Hand     string          `json:"hand"`
	Args     json.RawMessage `json:"args"`
	Notes    []string        `json:"notes"`
	Failures []string        `json:"failures"`
}

// drivers has the driver that all tests share, once one needs it.
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
		missing(t, "there is no Chromium: %v", err)
	}
	d := &driver{cmd: exec.Command(node(t, 22), "watch.mjs", path)}
	d.cmd.Stderr = &d.log
	d.cmd.WaitDelay = time.Second // for the pipe that the browser has, too
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

// play runs a scene in the driver, and reports its failures. with is the scene's input, hands are
// the functions that it may call. The scene writes its files to a folder of the test.
func (d *driver) play(t *testing.T, scene string, with map[string]any, hands map[string]hand) {
	t.Helper()
	notified := map[string]any{"scene": scene, "with": with, "dir": t.TempDir(), "shots": os.Getenv("WATCH_SHOTS")}
	if err := d.tell(notified); err != nil {
		t.Fatalf("the driver: %v\n%s", err, d.log.String())
	}
	stuck := time.AfterFunc(2*time.Minute, func() { d.cmd.Process.Kill() })
	defer stuck.Stop()
	for d.out.Scan() {
		var line driverLine
		if err := json.Unmarshal(d.out.Bytes(), &line); err != nil {
			t.Fatalf("the driver says %q: %v", d.out.Text(), err)
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
		if f := hands[line.Hand]; f == nil {
			reply["error"] = fmt.Sprintf("there is no hand %q", line.Hand)
		} else if value, err := f(line.Args); err != nil {
			reply["error"] = err.Error()
		} else {
			reply["value"] = value
		}
		if err := d.tell(reply); err != nil {
			t.Fatalf("the driver: %v\n%s", err, d.log.String())
		}
	}
	t.Fatalf("the driver is gone: %v\n%s", d.out.Err(), lastLines(d.log.String(), 30))
}

func (d *driver) tell(v any) error {
	line, err := json.Marshal(v)
	if err != nil {
		return err
	}
	_, err = d.in.Write(append(line, '\n'))
	return err
}
