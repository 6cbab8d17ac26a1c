package cli

import (
	"bufio"
	"io"
	"os/exec"
	"strings"
	"sync"
	"syscall"

	"github.com/rogpeppe/go-internal/testscript"
)

// tapping holds a function for each script that stops the tap it started last.
var tapping sync.Map

// cmdTapping starts "mcpwire tap --listen 127.0.0.1:0", waits until it listens, and sets TAP: tapping FLAGS... URL. What it writes to standard error is in the file
// stderr.txt once it has been stopped by untap, or with the script.
func cmdTapping(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) == 0 {
		ts.Fatalf("usage: tapping FLAGS... URL")
	}
	path, err := exec.LookPath("mcpwire")
	ts.Check(err)
	c := exec.Command(path, append([]string{"tap", "--listen", "127.0.0.1:0"}, args...)...)
	for _, name := range []string{"PATH", "GORACE", "HOME"} {
		c.Env = append(c.Env, name+"="+ts.Getenv(name))
	}
	c.Dir = ts.Getenv("WORK")
	out, err := c.StderrPipe()
	ts.Check(err)
	ts.Check(c.Start())
	lines := bufio.NewReader(out)
	var log strings.Builder
	for {
		line, err := lines.ReadString('\n')
		log.WriteString(line)
		if m := listening.FindStringSubmatch(line); m != nil {
			ts.Setenv("TAP", m[1])
			break
		}
		if err != nil {
			ts.Fatalf("it does not listen: %s", log.String())
		}
	}
	drained := make(chan struct{})
	go func() {
		io.Copy(&log, lines)
		close(drained)
	}()
	stop := sync.OnceValues(func() (string, error) {
		c.Process.Signal(syscall.SIGTERM)
		<-drained
		return log.String(), c.Wait()
	})
	tapping.Store(ts, stop)
	ts.Defer(func() { stop() })
}

// cmdUntap tells the tap to stop, which has to exit with status 0, and prints what it wrote to standard error: untap
func cmdUntap(ts *testscript.TestScript, neg bool, args []string) {
	stop, ok := tapping.Load(ts)
	if neg || len(args) > 0 || !ok {
		ts.Fatalf("usage: untap, after tapping")
	}
	log, err := stop.(func() (string, error))()
	ts.Check(err)
	io.WriteString(ts.Stdout(), log)
}
