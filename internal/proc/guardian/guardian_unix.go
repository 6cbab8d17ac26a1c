//go:build unix

package guardian

import (
	"io"
	"os/exec"
	"strconv"
	"syscall"
)

// script reads the number of a group, and then a line. If its input ends before the line, the
// process that started it is dead, and it ends the group.
const script = `read -r group && [ -n "$group" ] || exit 0
read -r x && exit 0
kill -s TERM -- "-$group" 2>/dev/null || exit 0
for i in 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20; do
	kill -s 0 -- "-$group" 2>/dev/null || exit 0
	sleep 0.1
done
kill -s KILL -- "-$group" 2>/dev/null`

// A Guardian watches one process group. A nil Guardian does nothing.
type Guardian struct {
	cmd  *exec.Cmd
	pipe io.WriteCloser
}

// Start starts a guardian, or returns nil without a shell. Start it before the processes that it
// watches, so that their owner can be killed at any time, and stop it when they have ended.
func Start() *Guardian {
	cmd := exec.Command("/bin/sh", "-c", script, "mcpwire-guardian")
	cmd.Env = []string{"PATH=/usr/bin:/bin"}
	cmd.Dir = "/"
	// A signal to this process's group or a closed terminal must not reach the guardian.
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

// Watch gives the guardian its group. Call it once, as soon as the group exists. Call Stop as soon
// as the group has ended, since its number may be reused.
func (g *Guardian) Watch(group int) {
	if g != nil {
		_, _ = io.WriteString(g.pipe, strconv.Itoa(group)+"\n")
	}
}

// Stop ends the guardian without ending the group, and waits for it.
func (g *Guardian) Stop() {
	if g == nil {
		return
	}
	_, _ = io.WriteString(g.pipe, "\n") // it ends in either case
	g.pipe.Close()
	_ = g.cmd.Wait()
}
