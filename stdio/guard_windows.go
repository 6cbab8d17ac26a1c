package stdio

import (
	"log/slog"
	"os"

	"golang.org/x/sys/windows"
)

// newGuard replaces os.Stdout and the standard output handle by a pipe, and the standard input
// handle by the null device. It does not change the descriptors of the C runtime.
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
			log.Warn("stdin could not be protected: programs started by handlers may read the protocol's input", "error", err)
		}
	}
	if stdout {
		r, w, err := os.Pipe()
		if err != nil {
			log.Warn("stdout could not be protected: write only protocol messages to it", "error", err)
			return g
		}
		g.pipe = r
		undo = append(undo, replaceHandle(&os.Stdout, w, windows.STD_OUTPUT_HANDLE))
		g.watchWG.Go(g.watch)
	}
	return g
}

// replaceHandle replaces *variable and the standard handle by f. It returns a function that
// restores both and closes f.
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

// readAvailable returns 0. When the write end is closed, the guard's goroutine has read everything.
func readAvailable(*os.File, []byte) int { return 0 }
