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
	"mcpwire/internal/proc/environ"
	"mcpwire/internal/proc/guardian"
	"mcpwire/internal/proc/procgroup"
	"mcpwire/jsonrpc"
)

// A Cmd describes how to run a server as a child process. Set its fields before the first use; it
// may then be started any number of times, also concurrently.
type Cmd struct {
	// Path is the program. Without a separator it is looked up in PATH. No shell is used.
	Path string
	// Args are the arguments without the program's name. Every user of the machine can read them,
	// so put secrets into Env.
	Args []string
	// Dir is the working directory. "" means the parent's.
	Dir string

	// Env is added to the inherited environment, as "NAME=value". Later entries win.
	Env []string
	// EnvAllow names the variables that the child inherits. "LC_*" stands for all names with that
	// prefix. Nil inherits everything; MinimalEnv returns a list without secrets.
	EnvAllow []string

	// Stderr receives a copy of the child's standard error in whole lines. Nil discards it. The
	// child never waits for a slow Stderr: lines beyond a buffer of 256 KiB are dropped. The
	// Process keeps the last 64 KiB for error messages in any case.
	Stderr io.Writer

	// Framing is the framing that Connect uses. FramingAuto means one line per message.
	Framing jsonrpc.Framing
	// MaxFrame limits a message, in bytes. Zero means jsonrpc.DefaultMaxFrame.
	MaxFrame int

	// StopWait, TermWait and KillWait limit the steps of Process.Close: the child has StopWait to
	// exit after the end of its standard input, TermWait after SIGTERM, and KillWait after SIGKILL.
	// Zero means 2 s, 3 s and 5 s; a negative value skips the wait.
	StopWait, TermWait, KillWait time.Duration
}

const (
	defaultStopWait = 2 * time.Second
	defaultTermWait = 3 * time.Second
	defaultKillWait = 5 * time.Second
)

// Command returns a Cmd for the named program and arguments, with default options.
func Command(name string, args ...string) *Cmd { return &Cmd{Path: name, Args: args} }

// String returns a name of the server for messages: the program and its arguments up to the first
// that is not an option. It omits the values of options, which may be secrets.
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

// Start starts the child. ctx covers the start only: the child runs until its Process is closed. To
// tie it to a context, call context.AfterFunc(ctx, func() { p.Close() }).
//
// The child leads a new process group (on Windows, it is in a job object), so Close ends its
// descendants too, and a Ctrl-C in the terminal does not reach it. If this process dies without
// closing the child, the child's standard input ends, and its group is ended. On Windows the job
// does that. Elsewhere a shell, /bin/sh, waits next to each child and sends SIGTERM, and SIGKILL 2
// s later.
//
// On Windows, Start quotes the arguments of a batch file, such as npx.cmd, for cmd.exe, so that the
// program gets them unchanged. It returns an error for arguments that a batch file cannot take:
// those with a line break, or of more than 8191 characters in total.
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
	cmd.SysProcAttr = procgroup.Attr()
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

// childPipes are the three pipes to a child, indexed by descriptor.
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

// environ returns the child's environment. Nil means to inherit everything.
func (c *Cmd) environ() []string {
	if c.EnvAllow == nil && c.Env == nil {
		return nil
	}
	return append(environ.Inherit(c.EnvAllow, nil), c.Env...)
}

// MinimalEnv returns a list for Cmd.EnvAllow. It has the variables that programs need to find
// files, other programs and the user's language, and none that usually holds a secret. The caller
// owns the list.
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

// errStillRunning is the error of reads from a child that has closed its standard output and runs
// on.
var errStillRunning = errors.New("closed its standard output but is still running")

// Connect starts the child and returns a framer over its standard input and output. It implements
// client.Transport. Each call starts a new process. Closing the framer closes the process, see
// [Process.Close]. When the process ends by itself, reads from the framer return the *ExitError.
func (c *Cmd) Connect(ctx context.Context) (jsonrpc.Framer, error) {
	p, err := c.Start(ctx)
	if err != nil {
		return nil, err
	}
	framing := c.Framing
	if framing == jsonrpc.FramingAuto {
		framing = jsonrpc.FramingLine // a client speaks first, so there is nothing to detect
	}
	return jsonrpc.NewFramer(p.conn(), &jsonrpc.FramerOptions{Framing: framing, MaxFrame: c.MaxFrame}), nil
}
