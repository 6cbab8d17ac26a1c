package tui

import (
	"io"
	"time"
)

// Options are the options of [Run]. nil means defaults.
type Options struct {
	// Filter is the text of the filter to begin with; one that is no filter is said to be wrong on the screen.
	Filter string
	// Colors limits the colours. Many, the zero value, uses what the terminal has.
	Colors Colors
	// Input and Output are the terminal; nil is the process's.
	Input  io.Reader
	Output io.Writer
	// Environ is the environment by which the terminal is judged, and $EDITOR found; nil is the process's.
	Environ []string
	// Folder is where captures are saved, and where relative names are meant; "" is the working folder.
	Folder string
	// Captures is the folder in which answers to requests that are sent again are recorded; "" turns that off.
	Captures string
	// Tool is the name and the version of the program, for the heads of captures.
	Tool string
	// Now returns the time by which timers count; nil is time.Now.
	Now func() time.Time
	// Zone is the time zone of the clock's column; nil is the local one.
	Zone *time.Location
}
