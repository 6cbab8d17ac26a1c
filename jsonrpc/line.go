package jsonrpc

import (
	"bytes"
	"cmp"
)

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
		if f.large != nil || f.partBytes+len(line) > f.max {
			if err := f.pass(line, true); err != nil {
				return nil, err
			}
			continue
		}
		if line = f.joined(line); !blank(line) {
			return line, nil
		}
	}
}

// lastLine deals with a line whose end has not come: it waits for it, gives up on it, or takes it as it is at the end of input.
func (f *StreamFramer) lastLine() ([]byte, error) {
	f.scanned = f.end
	line := f.buf[f.start:f.end]
	if f.large != nil || f.partBytes+len(line) > f.max {
		f.start = f.end
		if err := f.pass(line, f.readErr != nil); err != nil {
			return nil, err
		}
		return nil, f.more()
	}
	if f.readErr == nil {
		return nil, errNeedMore
	}
	f.start = f.end
	if line = f.joined(line); !blank(line) {
		return line, nil
	}
	return nil, f.readErr
}

// pass passes over a piece of a frame above the limit, and the parts before it. It returns a *FrameError once for each such frame.
func (f *StreamFramer) pass(piece []byte, last bool) error {
	if f.large == nil {
		f.large = &oversize{limit: f.max}
	}
	if !f.large.fixed {
		f.large.size += int64(f.partBytes + len(piece))
	}
	var err error
	for _, part := range f.parts {
		err = cmp.Or(err, f.large.take(part, false))
	}
	f.dropParts()
	err = cmp.Or(err, f.large.take(piece, last))
	if last {
		f.large = nil
	}
	return err
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
