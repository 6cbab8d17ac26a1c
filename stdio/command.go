package stdio

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"time"

	"mcpwire/internal/proc/batchfile"
	"mcpwire/internal/proc/guardian"
	"mcpwire/jsonrpc"
)

// A Cmd says how to run a server as a child process. It is not changed by being started and may be started any number of times, also at once;
// set its fields before.
type Cmd struct {
	Path string   // of the program; without a separator it is looked up in PATH. There is no shell
	Args []string // not including the program's name. Everybody on the machine can read them: secrets belong into Env
	Dir  string   // working directory; "" is the parent's

	// Env is added to what the child inherits, as "NAME=value"; later entries win.
	Env []string
	// EnvAllow names the variables the child inherits; "LC_*" stands for all that begin so. nil inherits everything, as os/exec does;
	// MinimalEnv is a list that gives away no secrets.
	EnvAllow []string

	// Stderr gets a copy of the child's standard error, in whole lines. The child does not wait for it: lines for which it is not ready, beyond
	// 256 KiB, are dropped. The last 64 KiB are kept for error messages in any case.
	Stderr io.Writer

	// Of Connect: how messages are told apart, of which FramingAuto is a line for each, and the largest in bytes, of which 0 is
	// jsonrpc.DefaultMaxFrame.
	Framing  jsonrpc.Framing
	MaxFrame int

	// The steps of Process.Close: after standard input was closed the child has StopWait to exit, after SIGTERM TermWait, and SIGKILL is given
	// KillWait to take effect. 0 is 2 s, 3 s and 5 s; a negative time does not wait.
	StopWait, TermWait, KillWait time.Duration
}

const (
	defaultStopWait = 2 * time.Second
	defaultTermWait = 3 * time.Second
	defaultKillWait = 5 * time.Second
)

// Command returns the Cmd that runs the named program with the arguments, with default options.
func Command(name string, args ...string) *Cmd { return &Cmd{Path: name, Args: args} }

// String names the server in messages: the program and its arguments up to the first that is no option, which keeps values of options, and
// with them secrets that should not be there, out of logs.
func (c *Cmd) String() string {
	name := filepath.Base(c.Path)
	for i, arg := range c.Args {
		option := strings.HasPrefix(arg, "-")
		if option {
			arg, _, _ = strings.Cut(arg, "=")
		}
		const longest = 80
		if len(name)+len(arg) > longest {
			return name + " …"
		}
		name += " " + arg
		if !option {
			if i < len(c.Args)-1 {
				name += " …"
			}
			break
		}
	}
	return name
}

// Start starts the child. ctx only covers the starting: a child outlives it, and ends when its Process is closed. To tie it to a context, use
// context.AfterFunc(ctx, func() { p.Close() }).
//
// The child leads a process group of its own (on Windows, is in a job object), so that Close reaches what it has started, and a Ctrl-C in
// the terminal does not reach it. If this process dies without closing it, its standard input ends, and the group is ended too: on Windows with its job; elsewhere a shell,
// /bin/sh, waits for that next to each child, and sends SIGTERM then, and SIGKILL 2 s later.
//
// On Windows, the arguments of a batch file, such as npx.cmd, are quoted for cmd.exe, so that the program behind it gets them unchanged. Arguments
// with a line break, and more than 8191 characters in all, cannot be passed to a batch file and are refused.
func (c *Cmd) Start(ctx context.Context) (*Process, error) {
	if err := context.Cause(ctx); err != nil {
		return nil, fmt.Errorf("start %q: %w", c, err)
	}
	var pipes childPipes
	if err := pipes.open(); err != nil {
		return nil, fmt.Errorf("start %q: %w", c, err)
	}
	cmd := exec.Command(c.Path, c.Args...)
	cmd.Dir, cmd.Env = c.Dir, c.environ()
	cmd.Stdin, cmd.Stdout, cmd.Stderr = pipes.child[0], pipes.child[1], pipes.child[2]
	cmd.SysProcAttr = processGroupAttr()
	if err := batchfile.Prepare(cmd); err != nil {
		closeFiles(pipes.child[:])
		closeFiles(pipes.parent[:])
		return nil, fmt.Errorf("start %q: %w", c, err)
	}

	p := newProcess(c, &pipes)
	g := guardian.Start()
	started := make(chan error)
	p.wg.Go(func() { p.run(cmd, g, started) })
	err := <-started
	closeFiles(pipes.child[:])
	if err != nil {
		g.Stop()
		closeFiles(pipes.parent[:])
		p.wg.Wait()
		return nil, fmt.Errorf("start %q: %w", c, err)
	}
	p.wg.Go(p.readStderr)
	p.wg.Go(func() {
		<-p.done
		g.Stop()
	})
	return p, nil
}

// childPipes are the three pipes to a child. The indices are its descriptors.
type childPipes struct {
	parent, child [3]*os.File
}

func (p *childPipes) open() error {
	for i := range p.parent {
		r, w, err := os.Pipe()
		if err != nil {
			closeFiles(p.parent[:])
			closeFiles(p.child[:])
			return err
		}
		p.parent[i], p.child[i] = r, w
		if i == 0 {
			p.parent[i], p.child[i] = w, r
		}
	}
	return nil
}

func closeFiles(files []*os.File) {
	for _, f := range files {
		if f != nil {
			f.Close()
		}
	}
}

// environ returns the child's environment; nil inherits all.
func (c *Cmd) environ() []string {
	if c.EnvAllow == nil && c.Env == nil {
		return nil
	}
	env := []string{}
	for _, entry := range os.Environ() {
		// On Windows, entries such as "=C:=C:\dir" have a name that begins with '='.
		name, _, _ := strings.Cut(entry[min(1, len(entry)):], "=")
		name = entry[:min(1, len(entry))] + name
		if c.EnvAllow == nil || matchesAny(name, c.EnvAllow) {
			env = append(env, entry)
		}
	}
	return append(env, c.Env...)
}

func matchesAny(name string, list []string) bool {
	for _, pattern := range list {
		if runtime.GOOS == "windows" {
			name, pattern = strings.ToUpper(name), strings.ToUpper(pattern)
		}
		if prefix, ok := strings.CutSuffix(pattern, "*"); ok && strings.HasPrefix(name, prefix) || name == pattern {
			return true
		}
	}
	return false
}

// MinimalEnv returns a list for Cmd.EnvAllow: what programs need to find files, other programs and the user's language, and nothing that usually
// holds a secret. The list is the caller's to extend.
func MinimalEnv() []string {
	if runtime.GOOS == "windows" {
		return []string{
			"PATH", "PATHEXT", "COMSPEC", "SYSTEMDRIVE", "SYSTEMROOT", "WINDIR", "TEMP", "TMP",
			"APPDATA", "LOCALAPPDATA", "PROGRAMDATA", "PROGRAMFILES", "PROGRAMFILES(X86)", "PROGRAMW6432",
			"HOMEDRIVE", "HOMEPATH", "USERNAME", "USERPROFILE", "NUMBER_OF_PROCESSORS", "PROCESSOR_ARCHITECTURE",
		}
	}
	return []string{"PATH", "HOME", "USER", "LOGNAME", "SHELL", "TERM", "LANG", "LANGUAGE", "LC_*", "TZ", "TMPDIR", "XDG_*"}
}

// errStillRunning is what reads return when a child has closed its standard output and goes on.
var errStillRunning = errors.New("closed its standard output but is still running")

// Connect starts the child and returns a framer over its standard input and output, which is what package client wants of a transport. Each call starts a
// fresh process. Closing the framer closes the process, see [Process.Close]. When the process ends by itself, reading the framer returns the *ExitError.
func (c *Cmd) Connect(ctx context.Context) (jsonrpc.Framer, error) {
	p, err := c.Start(ctx)
	if err != nil {
		return nil, err
	}
	framing := c.Framing
	if framing == jsonrpc.FramingAuto {
		framing = jsonrpc.FramingLine // a client speaks first, so there is nothing to find it out from
	}
	return jsonrpc.NewFramer(p, &jsonrpc.FramerOptions{Framing: framing, MaxFrame: c.MaxFrame}), nil
}
