//go:build unix

package tap

import (
	"io"
	"os/exec"
	"strconv"
	"syscall"
)

// guardScript waits for a line. If its input ends instead, the tap is dead, and the group is ended.
const guardScript = `read -r x && exit 0
kill -s TERM -- -"$1" 2>/dev/null || exit 0
for i in 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20; do
	kill -s 0 -- -"$1" 2>/dev/null || exit 0
	sleep 0.1
done
kill -s KILL -- -"$1" 2>/dev/null`

// A guardian ends a process group when this process dies without having done so: nothing else reaches a server that ignores the end of its input, be it
// because the kernel tells nobody (other systems than Linux) or only the leader. It is a shell, since that is a tenth of what another process of ours takes.
type guardian struct {
	cmd  *exec.Cmd
	life io.WriteCloser
}

// startGuardian starts one for a group. Without a shell there is none, which is nil.
func startGuardian(group int) *guardian {
	cmd := exec.Command("/bin/sh", "-c", guardScript, "mcpwire-tap-guardian", strconv.Itoa(group))
	cmd.Env = []string{"PATH=/usr/bin:/bin"}
	cmd.Dir = "/"
	// Who kills our group or closes our terminal must not reach it.
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	life, err := cmd.StdinPipe()
	if err != nil {
		return nil
	}
	if err := cmd.Start(); err != nil {
		return nil
	}
	return &guardian{cmd, life}
}

// dismiss ends the guardian.
func (g *guardian) dismiss() {
	if g == nil {
		return
	}
	_, _ = io.WriteString(g.life, "\n") // it ends in either case
	g.life.Close()
	_ = g.cmd.Wait()
}
