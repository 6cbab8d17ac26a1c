package call

import (
	"os"

	"golang.org/x/sys/windows"
)

// readEscapes makes a console interpret the escape sequences of line editing until restore is
// called. A console without support prints them.
func readEscapes(console *os.File) (restore func()) {
	handle := windows.Handle(console.Fd())
	var mode uint32
	if windows.GetConsoleMode(handle, &mode) != nil {
		return func() {}
	}
	const wanted = windows.ENABLE_PROCESSED_OUTPUT | windows.ENABLE_VIRTUAL_TERMINAL_PROCESSING
	if mode&wanted == wanted || windows.SetConsoleMode(handle, mode|wanted) != nil {
		return func() {}
	}
	return func() { _ = windows.SetConsoleMode(handle, mode) } // the same mode was valid before
}
