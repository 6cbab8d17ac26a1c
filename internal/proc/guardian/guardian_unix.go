//go:build unix

package guardian

import (
	"io"
	"os/exec"
	"strconv"
	"syscall"
)

// script waits for the number of a group, and then for a line. If its input ends before the line,
// whoever started it is dead, and the group is ended.
const script = `read -r group && [ -n "$group" ] || exit 0
read -r x && exit 0
kill -s TERM -- "-$group" 2>/dev/null || exit 0
for i in 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20; do
	kill -s 0 -- "-$group" 2>/dev/null || exit 0
	sleep 0.1
done
kill -s KILL -- "-$group" 2>/dev/null`

// A Guardian watches one process group. The nil Guardian watches none.
type Guardian struct {
	cmd  *exec.Cmd
	pipe io.WriteCloser
}

// Start starts a guardian. It returns nil where there is no shell. Start it before the processes that
// it is for, so that their owner can be killed at any time, and dismiss it when they have ended.
func Start() *Guardian {
	cmd := exec.Command("/bin/sh", "-c", script, "mcpwire-guardian")
	cmd.Env = []string{"PATH=/usr/bin:/bin"}
	cmd.Dir = "/"
	// Who kills our group or closes our terminal must not reach it.
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	life, err := cmd.StdinPipe()
	if err != nil {
		return nil
	}
	if err := cmd.Start(); err != nil {
		life.Close()
		return nil
	}
	return &Guardian{cmd, life}
}

// Watch tells the guardian its group, as soon as that exists. Call it once. Dismiss the guardian as
// soon as the group has ended: its number may be given to another one then.
func (g *Guardian) Watch(group int) {
	if g != nil {
		_, _ = io.WriteString(g.pipe, strconv.Itoa(group)+"\n")
	}
}

// Stop ends the guardian, which does nothing then, and waits for its end.
func (g *Guardian) Stop() {
	if g == nil {
		return
	}
	_, _ = io.WriteString(g.pipe, "\n") // it ends in either case
	g.pipe.Close()
	_ = g.cmd.Wait()
}
