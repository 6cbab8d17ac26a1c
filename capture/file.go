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
	"strings"

	"github.com/klauspost/compress/zstd"
)

// Suffix is how the name of a capture ends, before the ".gz" or ".zst" of a compressed one.
const Suffix = ".mcpcap.ndjson"

var (
	// ErrAppendCompressed is returned by Create for Options.Append with a compressed file: one that was not closed properly could not be read beyond that place.
	ErrAppendCompressed = errors.New("capture: cannot append to a compressed file")
	// ErrNotPrivate is returned by Create for Options.Append with a file that others than its owner may read, or that is no regular file.
	ErrNotPrivate = errors.New("capture: the file is not private to its owner")
)

// A File is a Writer with the file that it writes to.
type File struct {
	*Writer
	file *os.File
	comp io.Closer // nil: not compressed
}

// Create makes a file that only its owner may read, and records to it. It is compressed if its name ends in ".gz" or ".zst". A file that exists is an error that is fs.ErrExist, unless
// Options.Append is set.
func Create(name string, opts *Options) (*File, error) {
	compressed := strings.HasSuffix(name, ".gz") || strings.HasSuffix(name, ".zst")
	f, err := openFile(name, opts != nil && opts.Append, compressed)
	if err != nil {
		return nil, err
	}
	c := &File{file: f}
	w := io.Writer(f)
	switch {
	case strings.HasSuffix(name, ".gz"):
		z := gzip.NewWriter(f)
		w, c.comp = z, z
	case strings.HasSuffix(name, ".zst"):
		// One goroutine, and a window that a reader has room for.
		z, err := zstd.NewWriter(f, zstd.WithEncoderConcurrency(1), zstd.WithLowerEncoderMem(true), zstd.WithWindowSize(zstdWindow))
		if err != nil {
			f.Close()
			return nil, fmt.Errorf("compressing the capture: %w", err)
		}
		w, c.comp = z, z
	}
	c.Writer = NewWriter(justWriter(w, compressed), opts)
	return c, nil
}

const zstdWindow = 1 << 20

// justWriter hides the methods of a file from NewWriter, and leaves those of a compressor.
func justWriter(w io.Writer, compressed bool) io.Writer {
	if compressed {
		return w
	}
	return struct{ io.Writer }{w}
}

func openFile(name string, add, compressed bool) (*os.File, error) {
	f, err := os.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err == nil || !add || !errors.Is(err, fs.ErrExist) {
		return f, err
	}
	if compressed {
		return nil, ErrAppendCompressed
	}
	before, err := os.Lstat(name)
	if err != nil {
		return nil, err
	}
	if !private(before) {
		return nil, fmt.Errorf("%s: %w", name, ErrNotPrivate)
	}
	if f, err = os.OpenFile(name, os.O_RDWR|os.O_APPEND, 0); err != nil {
		return nil, err
	}
	now, err := f.Stat()
	if err == nil && (!os.SameFile(before, now) || !private(now)) { // it was replaced in between, by a link for example
		err = fmt.Errorf("%s: %w", name, ErrNotPrivate)
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

// endLine ends the last line of a file whose writer has died.
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
	err := f.Writer.Close()
	if errors.Is(err, ErrUnfinished) {
		// The write that goes on uses the compressor. Closing the file makes it return, if anything does.
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
func (f *File) Name() string { return f.file.Name() }

// decompress returns what is read of a stream that may be compressed. The magic numbers tell, whatever the name of the file is.
func decompress(src *bufio.Reader) (io.Reader, func(), error) {
	magic, _ := src.Peek(4) // an error shows again when reading
	switch {
	case bytes.HasPrefix(magic, []byte{0x1f, 0x8b}):
		z, err := gzip.NewReader(src)
		if err != nil {
			return nil, nil, fmt.Errorf("reading the capture: %w", err)
		}
		return z, func() { z.Close() }, nil
	case bytes.Equal(magic, []byte{0x28, 0xb5, 0x2f, 0xfd}):
		z, err := zstd.NewReader(src, zstd.WithDecoderConcurrency(1), zstd.WithDecoderLowmem(true), zstd.WithDecoderMaxWindow(64<<20))
		if err != nil {
			return nil, nil, fmt.Errorf("reading the capture: %w", err)
		}
		return z, z.Close, nil
	}
	return src, func() {}, nil
}
