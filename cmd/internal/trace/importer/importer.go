package importer

import (
	"bufio"
	"bytes"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"mcpwire/capture"
)

// A Format is the format of a source.
type Format string

// The formats.
const (
	Auto          Format = "auto"           // detected from the beginning of the source
	MCPSnoop      Format = "mcpsnoop"       // JSON Lines of mcpsnoop
	HAR           Format = "har"            // HTTP Archive 1.2, of browsers and proxies
	ClaudeDesktop Format = "claude-desktop" // mcp-server-NAME.log
	VSCode        Format = "vscode"         // output of an MCP server, at level debug or trace
	ClaudeCode    Format = "claude-code"    // mcp-logs-NAME/*.jsonl
)

// Formats returns all formats except [Auto].
func Formats() []Format { return []Format{MCPSnoop, HAR, ClaudeDesktop, VSCode, ClaudeCode} }

// ErrUnknown is the error for a source in an unknown format.
var ErrUnknown = errors.New("not in a supported format")

// maxLine limits the length of a line, in bytes. A longer line is skipped and leaves a gap.
const maxLine = 256 << 20

// byteOrderMark can begin a text file on Windows.
const byteOrderMark = "\ufeff"

// Options configures an import. A nil *Options means the defaults.
type Options struct {
	// Format is the format of the source. Empty means Auto.
	Format Format
	// Name overrides the name of the server. Empty means the name in the source.
	Name string
	// Tool is the importing tool, for the head of the capture.
	Tool string
	// Redact adds to the default redaction, or turns it off. Nil is the default alone.
	Redact *capture.Redaction
	// Zone is the time zone of logs that do not specify one. Nil means UTC.
	Zone *time.Location
}

// A Result counts what an import wrote.
type Result struct {
	Format Format
	// Events counts the events in the capture.
	Events uint64
	// Messages counts the events that are messages.
	Messages uint64
	// Notes counts the lines and messages that could not be parsed.
	Notes uint64
	// Skipped counts the entries of an archive without MCP traffic.
	Skipped uint64
	// Dropped counts the lines before the first one with a timestamp.
	Dropped uint64
}

// Run reads a source and writes it as a capture. opts may be nil.
func Run(w io.Writer, r io.Reader, opts *Options) (Result, error) {
	var o Options
	if opts != nil {
		o = *opts
	}
	if o.Zone == nil {
		o.Zone = time.UTC
	}
	br := bufio.NewReaderSize(r, 64<<10)
	if mark, _ := br.Peek(len(byteOrderMark)); string(mark) == byteOrderMark {
		_, _ = br.Discard(len(mark))
	}
	if o.Format == "" || o.Format == Auto {
		o.Format = detect(br)
	}
	s := &sink{opts: o, out: w}
	s.result.Format = o.Format
	var err error
	switch o.Format {
	case MCPSnoop:
		err = eachLine(br, s, snoopLine)
	case ClaudeDesktop:
		err = eachLine(br, s, desktopLine)
	case VSCode:
		err = eachLine(br, s, vscodeLine)
	case ClaudeCode:
		err = eachLine(br, s, codeLine)
	case HAR:
		err = readHAR(br, s)
	default:
		if _, err := br.Peek(1); err != nil && err != io.EOF {
			return s.result, err
		}
		return s.result, ErrUnknown
	}
	if err == nil && s.enc == nil {
		err = fmt.Errorf("%w: the file is empty", ErrUnknown)
	}
	if err != nil {
		return s.result, err
	}
	return s.result, s.close()
}

// detect returns the format of a source by its first 32 KiB, or "".
func detect(br *bufio.Reader) Format {
	head, _ := br.Peek(32 << 10)
	for line := range bytes.Lines(head) {
		line = bytes.TrimSpace(line)
		switch {
		case len(line) == 0:
			continue
		case bytes.Contains(line, []byte(`"session_id"`)) && bytes.Contains(line, []byte(`"direction"`)):
			return MCPSnoop
		case line[0] == '{' && bytes.Contains(line, []byte(`"timestamp"`)) && (bytes.Contains(line, []byte(`"debug"`)) || bytes.Contains(line, []byte(`"error"`))):
			return ClaudeCode
		case line[0] == '{' && bytes.Contains(head, []byte(`"log"`)) && (bytes.Contains(head, []byte(`"entries"`)) || bytes.Contains(head, []byte(`"creator"`))):
			return HAR
		}
		if _, ok := parseDesktop(line); ok {
			return ClaudeDesktop
		}
		if _, ok := parseVSCode(line, time.UTC); ok {
			return VSCode
		}
	}
	return ""
}

// eachLine calls handle for every line that is not blank.
func eachLine(br *bufio.Reader, s *sink, handle func(s *sink, line []byte) error) error {
	var long []byte
	for {
		part, err := br.ReadSlice('\n')
		if len(long)+len(part) > maxLine {
			size := int64(len(long) + len(part))
			for err == bufio.ErrBufferFull {
				part, err = br.ReadSlice('\n')
				size += int64(len(part))
			}
			s.gap(size)
			long, part = long[:0], nil
		}
		if err == bufio.ErrBufferFull {
			long = append(long, part...)
			continue
		}
		if err != nil && err != io.EOF {
			return err
		}
		line := part
		if len(long) > 0 {
			line = append(long, part...)
			long = long[:0]
		}
		if line = bytes.TrimRight(line, "\r\n"); len(bytes.TrimSpace(line)) > 0 {
			if failed := handle(s, line); failed != nil {
				return failed
			}
		}
		if err == io.EOF {
			return nil
		}
	}
}

// A sink writes the capture.
type sink struct {
	opts Options
	// url is the server's URL, if the source has it.
	url      string
	out      io.Writer
	enc      *capture.Encoder
	start    time.Time
	last     time.Duration
	n        uint64
	sessions map[string]uint64
	result   Result
}

// begin writes the head, once.
func (s *sink) begin(at time.Time, name string, transport capture.Transport) error {
	if s.enc != nil {
		return nil
	}
	s.enc = capture.NewEncoder(s.out, s.opts.Redact)
	if s.opts.Name != "" {
		name = s.opts.Name
	}
	s.start = at
	return s.enc.Encode(&capture.Event{Kind: capture.KindHead, Head: &capture.Head{
		Version: capture.Version, ID: rand.Text(), At: at, Tool: s.opts.Tool, Transport: transport, Name: name, URL: s.url,
	}})
}

// add writes an event. Events keep the order of the source: a time before the previous event's
// counts as the same time.
func (s *sink) add(at time.Time, e *capture.Event) error {
	s.n++
	s.last = max(s.last, at.Sub(s.start))
	e.N, e.T = s.n, s.last
	s.result.Events++
	if e.Kind == capture.KindMessage {
		s.result.Messages++
	}
	return s.enc.Encode(e)
}

// note writes a line that cannot be parsed.
func (s *sink) note(at time.Time, line []byte) error {
	s.result.Notes++
	return s.add(at, &capture.Event{Kind: capture.KindNote, Data: line})
}

// gap records that a line was too long.
func (s *sink) gap(size int64) {
	if s.enc == nil { // before the first timestamp
		s.result.Dropped++
		return
	}
	_ = s.add(s.start, &capture.Event{Kind: capture.KindGap, Gap: &capture.Gap{Lost: 1, Bytes: size, Why: capture.GapLimit}})
}

// session returns the number of a session. Zero means none.
func (s *sink) session(id string) uint64 {
	const most = 1 << 16
	const longest = 256
	if id == "" {
		return 0
	}
	id = strings.Clone(id[:min(len(id), longest)])
	n, ok := s.sessions[id]
	if !ok && len(s.sessions) < most {
		if s.sessions == nil {
			s.sessions = map[string]uint64{}
		}
		n = uint64(len(s.sessions) + 1)
		s.sessions[id] = n
	}
	return n
}

// close writes the tail and flushes.
func (s *sink) close() error {
	if err := s.enc.Encode(&capture.Event{Kind: capture.KindTail, N: s.n + 1, T: s.last, Tail: &capture.Tail{Events: s.result.Events}}); err != nil {
		return err
	}
	return s.enc.Flush()
}
