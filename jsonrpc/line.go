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
		if f.oversize != nil || f.chunkBytes+len(line) > f.max {
			if err := f.skipChunk(line, true); err != nil {
				return nil, err
			}
			continue
		}
		if line = f.joinChunks(line); !isBlank(line) {
			return line, nil
		}
	}
}

// lastLine deals with a line whose end has not come: it waits for it, gives up on it, or takes it as it is at the end of input.
func (f *StreamFramer) lastLine() ([]byte, error) {
	f.scanned = f.end
	line := f.buf[f.start:f.end]
	if f.oversize != nil || f.chunkBytes+len(line) > f.max {
		f.start = f.end
		if err := f.skipChunk(line, f.readErr != nil); err != nil {
			return nil, err
		}
		return nil, f.incomplete()
	}
	if f.readErr == nil {
		return nil, errNeedMore
	}
	f.start = f.end
	if line = f.joinChunks(line); !isBlank(line) {
		return line, nil
	}
	return nil, f.readErr
}

// skipChunk passes over a piece of a frame above the limit, and the parts before it. It returns a *FrameError once for each such frame.
func (f *StreamFramer) skipChunk(chunk []byte, last bool) error {
	if f.oversize == nil {
		f.oversize = &oversizeScanner{limit: f.max}
	}
	if !f.oversize.sizeKnown {
		f.oversize.size += int64(f.chunkBytes + len(chunk))
	}
	var err error
	for _, stashed := range f.chunks {
		err = cmp.Or(err, f.oversize.feed(stashed, false))
	}
	f.dropChunks()
	err = cmp.Or(err, f.oversize.feed(chunk, last))
	if last {
		f.oversize = nil
	}
	return err
}

// isBlank reports whether a line holds only white space.
func isBlank(line []byte) bool {
	for _, c := range line {
		if c != ' ' && c != '\t' && c != '\r' {
			return false
		}
	}
	return true
}
