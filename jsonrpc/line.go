package jsonrpc

import "bytes"

// nextLine returns the next line that is not blank.
func (f *StreamFramer) nextLine() ([]byte, error) {
	for {
		i := bytes.IndexByte(f.buf[f.scanned:f.end], '\n')
		if i < 0 {
			return f.lastLine()
		}
		line := f.buf[f.start : f.scanned+i]
		f.start = f.scanned + i + 1
		f.scanned = f.start
		if f.skipping || len(line) > f.max {
			f.skipping = false
			return nil, errTooLarge(f.max)
		}
		if !blank(line) {
			return line, nil
		}
	}
}

// lastLine deals with a line whose end has not come: it waits for it, gives up on it, or takes it as it is at the end of input.
func (f *StreamFramer) lastLine() ([]byte, error) {
	f.scanned = f.end
	tooLong := f.skipping || f.end-f.start > f.max
	if tooLong {
		f.skipping = true
		f.start = f.end
	}
	if f.readErr == nil {
		return nil, errNeedMore
	}
	line := f.buf[f.start:f.end]
	f.start = f.end
	switch {
	case tooLong:
		f.skipping = false
		return nil, errTooLarge(f.max)
	case !blank(line):
		return line, nil
	}
	return nil, f.readErr
}

// blank reports whether a line holds only white space.
func blank(line []byte) bool {
	for _, c := range line {
		if c != ' ' && c != '\t' && c != '\r' {
			return false
		}
	}
	return true
}
