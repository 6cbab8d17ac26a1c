package stdio

import (
	"os"

	"golang.org/x/sys/windows"
)

// replaceStdin replaces os.Stdin and the standard input handle by the null device, but not the
// descriptor of the C runtime. It returns a function that restores both.
func replaceStdin() (func(), error) {
	null, err := os.Open(os.DevNull)
	if err != nil {
		return nil, err
	}
	return replaceHandle(&os.Stdin, null, windows.STD_INPUT_HANDLE), nil
}

// replaceStdout makes g.pipe read what is written to os.Stdout and to the standard output handle.
func (g *guard) replaceStdout() (func(), error) {
	r, w, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	g.pipe = r
	return replaceHandle(&os.Stdout, w, windows.STD_OUTPUT_HANDLE), nil
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
