package capture

import (
	"bufio"
	"bytes"
	"compress/gzip"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/klauspost/compress/zstd"
)

// Suffix is the end of a capture's file name, before the ".gz" or ".zst" of a compressed one.
const Suffix = ".mcpcap.ndjson"

// Options.Notice gets an error that wraps one of these when the file of a capture was removed,
// alone or with its folder, or truncated.
var (
	errRemoved   = errors.New("capture: the file was removed")
	errTruncated = errors.New("capture: the file was truncated")
)

// A File is a Writer with the file that it writes to.
//
// If the file is removed while the File records, alone or with its folder, the File creates it
// again within a second, with a gap for the lost events, and calls Options.Notice. If the file is
// truncated, as some programs that rotate logs do, the File begins it again in the same way.
type File struct {
	*Writer
	name string
	// comp is nil if the file is not compressed.
	comp compressor
	out  fileOut

	// mu guards file and closing.
	mu      sync.Mutex
	file    *os.File
	closing bool
}

// A compressor is a [gzip.Writer] or a [zstd.Encoder].
type compressor interface {
	io.WriteCloser
	Flush() error
	Reset(io.Writer)
}

// fileOut is the destination of a Writer's goroutine.
type fileOut struct {
	f    *File
	opts Options
	// atLineStart reports that the next byte begins a line.
	atLineStart bool
	// removed reports that the file was removed and not recreated yet.
	removed   bool
	lastCheck time.Time
	// size is the size of the file at the last check.
	size int64
}

// checkInterval is the time between two checks that the file still exists.
const checkInterval = time.Second

// Write implements [io.Writer].
func (o *fileOut) Write(p []byte) (int, error) {
	if first := bytes.TrimPrefix(p, []byte("\n")); (o.atLineStart || len(first) < len(p)) && bytes.HasPrefix(first, []byte(`{"n":`)) && o.checkDue() {
		if err := o.checkFile(first); err != nil {
			return 0, err
		}
	}
	if o.removed {
		return 0, fmt.Errorf("%s: %w", o.f.name, errRemoved)
	}
	n, err := o.dest().Write(p)
	o.atLineStart = n == len(p) && n > 0 && p[n-1] == '\n'
	return n, err
}

// checkDue reports whether to check the file: once a second, and before the last line.
func (o *fileOut) checkDue() bool {
	o.f.mu.Lock()
	closing := o.f.closing
	o.f.mu.Unlock()
	return closing || time.Since(o.lastCheck) >= checkInterval
}

func (o *fileOut) dest() io.Writer {
	if o.f.comp != nil {
		return o.f.comp
	}
	return o.f.file
}

// Flush flushes the compressor, if there is one.
func (o *fileOut) Flush() error {
	if o.f.comp == nil || o.removed {
		return nil
	}
	return o.f.comp.Flush()
}

// checkFile begins the file again if it was removed or truncated. line is the next line; its number
// tells how many events are lost.
func (o *fileOut) checkFile(line []byte) error {
	f := o.f
	o.lastCheck = time.Now()
	if !o.removed {
		is, err := f.file.Stat()
		if err != nil {
			return nil // Write will return the error
		}
		current, err := os.Stat(f.name)
		if err == nil && os.SameFile(is, current) {
			if is.Size() >= o.size {
				o.size = is.Size()
				return nil
			}
			return o.restart(line)
		}
		if err != nil && !errors.Is(err, fs.ErrNotExist) && !errors.Is(err, syscall.ENOTDIR) {
			return nil
		}
	}
	wasRemoved := o.removed
	o.removed = true
	if err := o.recreate(line); err != nil {
		err = fmt.Errorf("%s: %w, and cannot be created again: %w", f.name, errRemoved, err)
		if !wasRemoved {
			o.notice(err)
		}
		return err
	}
	o.removed = false
	o.notice(fmt.Errorf("%s: %w; recording continues in a new file", f.name, errRemoved))
	return nil
}

func (o *fileOut) notice(err error) {
	if o.opts.Notice != nil {
		o.opts.Notice(err)
	}
}

// restart begins a file that was truncated again. What was written after that is removed: it has no
// head, and a part of a compressed stream cannot be read.
func (o *fileOut) restart(line []byte) error {
	if err := o.f.file.Truncate(0); err != nil {
		return fmt.Errorf("%s: %w: %w", o.f.name, errTruncated, err)
	}
	if err := o.begin(line); err != nil {
		return err
	}
	o.notice(fmt.Errorf("%s: %w; the events before are missing in it", o.f.name, errTruncated))
	return nil
}

// recreate creates the file again, with a head and a gap.
func (o *fileOut) recreate(line []byte) error {
	f := o.f
	if err := os.MkdirAll(filepath.Dir(f.name), 0o700); err != nil {
		return err
	}
	file, err := openFile(f.name, false, false)
	if err != nil {
		return err
	}
	o.opts.opened(file)
	f.mu.Lock()
	old := f.file
	f.file = file
	f.mu.Unlock()
	old.Close() // nobody can read it
	return o.begin(line)
}

// begin writes the head and a gap into an empty file.
func (o *fileOut) begin(line []byte) error {
	f := o.f
	o.size = 0
	if f.comp != nil {
		f.comp.Reset(f.file)
	}
	next := parseLinePrefix(line)
	enc := NewEncoder(o.dest(), o.opts.Redact)
	enc.Encode(&f.Writer.loop.head)
	if next.N > 1 {
		enc.Encode(gapEvent(1, 0, Gap{Lost: next.N - 1, Until: next.T, Why: GapWrite}))
	}
	return enc.Flush()
}

// parseLinePrefix returns the number and the time that a line begins with. The line may be
// incomplete.
func parseLinePrefix(line []byte) (e Event) {
	rest := bytes.TrimPrefix(line, []byte(`{"n":`))
	n, rest, _ := bytes.Cut(rest, []byte(`,"t":`))
	t, _, _ := bytes.Cut(rest, []byte{','})
	e.N = parseUint(n)
	if len(t) < 32 {
		e.T = parseSeconds(t)
	}
	return e
}

// Create creates a file that only its owner may read, and records to it. It compresses the file if
// the name ends in ".gz" or ".zst".
//
// If the file exists and Options.Append is not set, the error wraps fs.ErrExist. With
// Options.Append, it wraps errors.ErrUnsupported if the file is compressed, and fs.ErrPermission if
// the file is not regular or not private to its owner.
func Create(name string, opts *Options) (*File, error) {
	compressed := strings.HasSuffix(name, ".gz") || strings.HasSuffix(name, ".zst")
	f, err := openFile(name, opts != nil && opts.Append, compressed)
	if err != nil {
		return nil, err
	}
	c := &File{name: name, file: f}
	c.out = fileOut{f: c, lastCheck: time.Now()}
	if opts != nil {
		c.out.opts = *opts
	}
	c.out.opts.opened(f)
	switch {
	case strings.HasSuffix(name, ".gz"):
		c.comp = gzip.NewWriter(f)
	case strings.HasSuffix(name, ".zst"):
		// One goroutine, and a window that a reader has room for.
		z, err := zstd.NewWriter(f, zstd.WithEncoderConcurrency(1), zstd.WithLowerEncoderMem(true), zstd.WithWindowSize(zstdWindow))
		if err != nil {
			f.Close()
			return nil, fmt.Errorf("compress the capture: %w", err)
		}
		c.comp = z
	}
	w := io.Writer(&c.out)
	if c.comp == nil {
		w = struct{ io.Writer }{w} // hides Flush: there is nothing to flush
	}
	c.Writer = NewWriter(w, opts)
	return c, nil
}

const zstdWindow = 1 << 20

// opened calls the hook for a file that was opened.
func (o *Options) opened(f *os.File) {
	if o.Hooks != nil && o.Hooks.Opened != nil {
		o.Hooks.Opened(f)
	}
}

// openFile opens the file for appending, so that a file that is truncated gets no hole.
func openFile(name string, appendTo, compressed bool) (*os.File, error) {
	f, err := os.OpenFile(name, os.O_WRONLY|os.O_APPEND|os.O_CREATE|os.O_EXCL, 0o600)
	if err == nil || !appendTo || !errors.Is(err, fs.ErrExist) {
		return f, err
	}
	if compressed {
		// Readers could not continue past the end of a compressed part that was not closed.
		return nil, fmt.Errorf("%s: appending to a compressed capture: %w", name, errors.ErrUnsupported)
	}
	before, err := os.Lstat(name)
	if err != nil {
		return nil, err
	}
	if !private(before) {
		return nil, notPrivate(name)
	}
	if f, err = os.OpenFile(name, os.O_RDWR|os.O_APPEND, 0); err != nil {
		return nil, err
	}
	now, err := f.Stat()
	// The file was replaced in between, for example by a link.
	if err == nil && (!os.SameFile(before, now) || !private(now)) {
		err = notPrivate(name)
	}
	if err == nil {
		err = endLine(f, now.Size())
	}
	if err != nil {
		f.Close()
		return nil, err
	}
	return f, nil
}

func notPrivate(name string) error {
	return fmt.Errorf("%s: the file is not private to its owner: %w", name, fs.ErrPermission)
}

// endLine ends an incomplete last line, which a writer that died has left.
func endLine(f *os.File, size int64) error {
	if size == 0 {
		return nil
	}
	var last [1]byte
	if _, err := f.ReadAt(last[:], size-1); err != nil || last[0] == '\n' {
		return err
	}
	_, err := f.Write([]byte("\n"))
	return err
}

// Close closes the Writer, the compressor and the file.
func (f *File) Close() error {
	f.mu.Lock()
	f.closing = true
	f.mu.Unlock()
	err := f.Writer.Close()
	f.mu.Lock()
	defer f.mu.Unlock()
	if errors.Is(err, errUnfinished) {
		// The unfinished write still uses the compressor. Closing the file is the best way to make
		// it return.
		return errors.Join(err, f.file.Close())
	}
	if f.comp != nil {
		err = errors.Join(err, f.comp.Close())
		f.comp = nil
	}
	if cerr := f.file.Close(); cerr != nil && !errors.Is(cerr, fs.ErrClosed) {
		err = errors.Join(err, cerr)
	}
	return err
}

// Name returns the name of the file.
func (f *File) Name() string { return f.name }

// decompress returns a reader of the plain stream. It detects compression by magic numbers, not by
// the file name. The decompressor reads src through packed.
func decompress(src *bufio.Reader, packed io.Reader) (io.Reader, func(), error) {
	magic, _ := src.Peek(4) // reading reports an error again
	switch {
	case bytes.HasPrefix(magic, []byte{0x1f, 0x8b}):
		z, err := gzip.NewReader(packed)
		if err != nil {
			return nil, nil, fmt.Errorf("read the capture: %w", err)
		}
		return z, func() { z.Close() }, nil
	case bytes.Equal(magic, []byte{0x28, 0xb5, 0x2f, 0xfd}):
		z, err := zstd.NewReader(packed, zstd.WithDecoderConcurrency(1), zstd.WithDecoderLowmem(true), zstd.WithDecoderMaxWindow(64<<20))
		if err != nil {
			return nil, nil, fmt.Errorf("read the capture: %w", err)
		}
		return z, z.Close, nil
	}
	return src, func() {}, nil
}
