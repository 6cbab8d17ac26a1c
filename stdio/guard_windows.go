package stdio

import (
	"log/slog"
	"os"

	"golang.org/x/sys/windows"
)

// newGuard replaces os.Stdout and the process's standard output handle by a pipe, and the standard input handle by the null device. The C
// runtime keeps descriptors of its own, which stay as they are.
func newGuard(log *slog.Logger, stdin, stdout bool) *guard {
	g := &guard{log: log}
	var undo []func()
	g.restore = func() {
		for _, f := range undo {
			f()
		}
	}
	if stdin {
		if null, err := os.Open(os.DevNull); err == nil {
			undo = append(undo, replaceHandle(&os.Stdin, null, windows.STD_INPUT_HANDLE))
		} else {
			log.Warn("stdin could not be guarded; a program started by a handler may read the protocol's input", "error", err)
		}
	}
	if stdout {
		r, w, err := os.Pipe()
		if err != nil {
			log.Warn("stdout could not be guarded; nothing but the protocol may be written to it", "error", err)
			return g
		}
		g.pipe = r
		undo = append(undo, replaceHandle(&os.Stdout, w, windows.STD_OUTPUT_HANDLE))
		g.watchWG.Go(g.watch)
	}
	return g
}

// replaceHandle swaps f in, and returns what swaps it out and closes it.
func replaceHandle(variable **os.File, f *os.File, std uint32) func() {
	old := *variable
	oldHandle, err := windows.GetStdHandle(std)
	*variable = f
	windows.SetStdHandle(std, windows.Handle(f.Fd()))
	return func() {
		*variable = old
		if err == nil {
			windows.SetStdHandle(std, oldHandle)
		}
		f.Close()
	}
}

// readAvailable finds nothing: closing the write end has made the guard's goroutine read everything.
func readAvailable(*os.File, []byte) int { return 0 }
