package cli

import (
	"os"

	"golang.org/x/sys/windows"
)

// readEscapes has a console understand the escape sequences by which lines are edited, until restore is
// called. A console that cannot shows them.
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
	return func() { _ = windows.SetConsoleMode(handle, mode) } // it worked before
}
