package server_test

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"maps"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/rogpeppe/go-internal/txtar"

	"mcpwire/mcp"
	"mcpwire/server"
)

// A wire transcript is a txtar file in testdata; each of its sections is a script that runs on its
// own connection and server:
//
//	> {"jsonrpc":…}     a frame that is sent
//	>& {"jsonrpc":…}    the same, but the next frame is sent in the same write, without waiting
//	                    for responses
//	>q "\xef\xbb\xbf"   a frame as a Go string
//	>raw "Content-…"    bytes that are sent without framing
//	< {"jsonrpc":…}     a frame that must be received, byte for byte, before the next one is sent.
//	                    Other frames are errors
//	@eof                the end of input. It is also the end of each script
//	# …                 a comment
//
// Options at the top of a script:
//
//	@unordered          the responses between two frames may come in any order
//	@revision legacy    run it in each of the listed revisions (legacy is all with a handshake);
//	                    $REVISION is replaced by the current one
//	@handshake          begin with a handshake, in $REVISION or in the named revision
//	@speaks R R         the server's revisions, may be $REVISION; @lenient, @pages N, @tools NAME… are
//	                    other options of the server
//	@primitives         the server also has resources, prompts and their tools
//	@asking             the server has tools that send input requests
//	@framing line       run it in this framing only
//
// $MODERN is replaced by the two members that the _meta of a modern request must have, $SERVER by
// the one that its result has, $CURSOR by the last nextCursor, $STATE by the last requestState,
// $DIGITS by a long number, $LONG by a long text, $DEEP and $TOODEEP by nested arrays. With
// -update, the responses are written into the files.
type script struct {
	file, name string
	revisions  []string // at least one, may be empty
	handshake  string   // empty for none
	unordered  bool
	speaksOne  bool // the server supports only $REVISION
	framing    string
	tools      []string
	primitives bool // with resources and prompts
	asking     bool // with tools that send input requests
	options    server.Options
	steps      []step
	lines      []string // lines of the file
}

// A step has one or more frames and the responses to them.
type step struct {
	send []frame
	want []string
	at   int // index in script.lines after which the responses are inserted
}

type frame struct {
	text string
	raw  bool // sent without framing
	eof  bool
}

const (
	modernMeta = `"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientCapabilities":{}`
	serverMeta = `"io.modelcontextprotocol/serverInfo":{"name":"wire","version":"1.0"}`
)

// standing are the variables of all scripts.
var standing = vars{
	"$MODERN":  modernMeta,
	"$SERVER":  serverMeta,
	"$DIGITS":  strings.Repeat("7", 5000),
	"$LONG":    strings.Repeat("long", 50_000),
	"$DEEP":    strings.Repeat("[", 509) + strings.Repeat("]", 509),
	"$TOODEEP": strings.Repeat("[", 513) + strings.Repeat("]", 513),
}

func legacyRevisions() []string {
	var all []string
	for _, r := range mcp.Revisions() {
		if !r.Modern() {
			all = append(all, r.String())
		}
	}
	return all
}

// scripts reads all transcripts.
func scripts(t testing.TB) []*script {
	t.Helper()
	files, err := filepath.Glob("testdata/*.txtar")
	if err != nil || len(files) == 0 {
		t.Fatalf("no transcripts: %v", err)
	}
	var all []*script
	for _, file := range files {
		archive, err := txtar.ParseFile(file)
		if err != nil {
			t.Fatal(err)
		}
		for _, section := range archive.Files {
			s, err := parseScript(file, section.Name, string(section.Data))
			if err != nil {
				t.Fatalf("%s: %s: %v", file, section.Name, err)
			}
			all = append(all, s)
		}
	}
	return all
}

func parseScript(file, name, text string) (*script, error) {
	s := &script{file: file, name: name, revisions: []string{""}, lines: strings.Split(strings.TrimRight(text, "\n"), "\n")}
	open := false // the last step accepts more frames
	add := func(f frame, at int) {
		if !open {
			s.steps = append(s.steps, step{})
		}
		last := &s.steps[len(s.steps)-1]
		last.send = append(last.send, f)
		last.at = at
	}
	for i, line := range s.lines {
		word, rest, _ := strings.Cut(line, " ")
		switch {
		case word == ">", word == ">&":
			add(frame{text: rest}, i)
			open = word == ">&"
		case word == ">q", word == ">raw":
			text, err := strconv.Unquote(rest)
			if err != nil {
				return nil, fmt.Errorf("line %d: %w", i+1, err)
			}
			add(frame{text: text, raw: word == ">raw"}, i)
			open = false
		case word == "@eof":
			add(frame{eof: true}, i)
			open = false
		case word == "<":
			if len(s.steps) == 0 {
				return nil, fmt.Errorf("line %d: a response without a request", i+1)
			}
			last := &s.steps[len(s.steps)-1]
			last.want = append(last.want, rest)
		case strings.HasPrefix(word, "@"):
			if err := s.directive(word[1:], strings.Fields(rest)); err != nil {
				return nil, fmt.Errorf("line %d: %w", i+1, err)
			}
		case word != "" && word[0] != '#':
			return nil, fmt.Errorf("line %d: %q is neither a frame nor a directive", i+1, line)
		}
	}
	return s, nil
}

func (s *script) directive(name string, args []string) (err error) {
	o := &s.options
	switch name {
	case "revision":
		if s.revisions = args; slices.Equal(args, []string{"legacy"}) {
			s.revisions = legacyRevisions()
		}
	case "handshake":
		s.handshake = strings.Join(args, "")
		if s.handshake == "" {
			s.handshake = "$REVISION"
		}
	case "speaks":
		for _, date := range args {
			if s.speaksOne = date == "$REVISION"; s.speaksOne {
				break
			}
			r, ok := mcp.ParseRevision(date)
			if !ok {
				return fmt.Errorf("no revision %q", date)
			}
			o.Revisions = append(o.Revisions, r)
		}
	case "lenient":
		o.Lenient = true
	case "pages":
		o.Limits.PageSize, err = strconv.Atoi(args[0])
	case "public":
		o.Cache.ListPublic, o.Cache.ListTTL = true, time.Hour
	case "instructions":
		o.Instructions = strings.Join(args, " ")
	case "tools":
		s.tools = args
	case "primitives":
		s.primitives = true
	case "asking":
		s.asking = true
	case "framing":
		s.framing = args[0]
	case "unordered":
		s.unordered = true
	default:
		return fmt.Errorf("no directive @%s", name)
	}
	return err
}

// update writes the responses that got has for each step into the file.
func (s *script) update(got [][]string) error {
	byLine := map[int][]string{}
	for i, answers := range got {
		if was := s.steps[i].want; s.unordered && slices.Equal(sorted(was), sorted(answers)) {
			answers = was // keeps the order of the file
		}
		byLine[s.steps[i].at] = answers
	}
	var b strings.Builder
	for i, line := range s.lines {
		if strings.HasPrefix(line, "< ") {
			continue
		}
		b.WriteString(line + "\n")
		for _, answer := range byLine[i] {
			b.WriteString("< " + answer + "\n")
		}
	}
	archive, err := txtar.ParseFile(s.file)
	if err != nil {
		return err
	}
	for i := range archive.Files {
		if archive.Files[i].Name == s.name {
			archive.Files[i].Data = []byte(b.String())
		}
	}
	return os.WriteFile(s.file, txtar.Format(archive), 0o666)
}

func sorted(list []string) []string { return slices.Sorted(slices.Values(list)) }

// vars are the variables of a script.
type vars map[string]string

func (v vars) expand(text string) string {
	for _, name := range slices.Sorted(maps.Keys(v)) {
		text = strings.ReplaceAll(text, name, v[name])
	}
	return text
}

// fold replaces the values in responses by their variables.
func (v vars) fold(text string) string {
	if _, after, ok := strings.Cut(text, `"nextCursor":"`); ok {
		v["$CURSOR"], _, _ = strings.Cut(after, `"`)
	}
	if _, after, ok := strings.Cut(text, `"requestState":"`); ok {
		v["$STATE"], _, _ = strings.Cut(after, `"`)
	}
	for _, name := range slices.Sorted(maps.Keys(v)) {
		if v[name] != "" {
			text = strings.ReplaceAll(text, v[name], name)
		}
	}
	return text
}

// A wire is the client's end of a connection.
type wire struct {
	r      io.Reader
	w      io.WriteCloser // closing it ends the input
	server io.ReadWriteCloser
	close  func()
}

// transports are the transports that transcripts run over.
var transports = []struct {
	name   string
	bubble bool // whether it works in a synctest bubble
	open   func(t *testing.T) *wire
}{
	{"net.Pipe", true, openNetPipe},
	{"os.Pipe", false, openOSPipe},
	{"unix", false, openUnix},
}

// A duplex joins two one-way streams.
type duplex struct {
	io.Reader
	io.Writer
	closers []io.Closer
}

func (d *duplex) Close() error {
	for _, c := range d.closers {
		c.Close()
	}
	return nil
}

func newWire(in io.ReadCloser, inWriter io.WriteCloser, outReader io.ReadCloser, out io.WriteCloser) *wire {
	server := &duplex{in, out, []io.Closer{in, out}}
	return &wire{r: outReader, w: inWriter, server: server, close: func() { inWriter.Close(); outReader.Close() }}
}

func openNetPipe(*testing.T) *wire {
	in, inWriter := net.Pipe()
	out, outReader := net.Pipe()
	return newWire(in, inWriter, outReader, out)
}

func openOSPipe(t *testing.T) *wire {
	in, inWriter, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	outReader, out, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	return newWire(in, inWriter, outReader, out)
}

func openUnix(t *testing.T) *wire {
	dir, err := os.MkdirTemp("", "wire") // t.TempDir is too long for a socket address
	if err != nil {
		t.Fatal(err)
	}
	defer os.RemoveAll(dir)
	l, err := net.Listen("unix", filepath.Join(dir, "s"))
	if err != nil {
		t.Skipf("no unix sockets here: %v", err)
	}
	defer l.Close()
	client, err := net.Dial("unix", l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	conn, err := l.Accept()
	if err != nil {
		t.Fatal(err)
	}
	return &wire{r: client, w: closeWriter{client.(*net.UnixConn)}, server: conn, close: func() { client.Close() }}
}

type closeWriter struct{ *net.UnixConn }

func (c closeWriter) Close() error { return c.CloseWrite() }

// frameText adds the framing to a message.
func frameText(framing, message string) string {
	if framing == "header" {
		return fmt.Sprintf("Content-Length: %d\r\n\r\n%s", len(message), message)
	}
	return message + "\n"
}

// readFrame reads one message of the framing, strictly and without package jsonrpc.
func readFrame(r *bufio.Reader, framing string) (string, error) {
	line, err := r.ReadString('\n')
	if err != nil {
		if errors.Is(err, io.EOF) && line != "" {
			return "", fmt.Errorf("output ends with %q", line)
		}
		return "", err
	}
	line = strings.TrimSuffix(line, "\n")
	if framing != "header" {
		if line == "" || strings.ContainsAny(line, "\r") {
			return "", fmt.Errorf("line %q", line)
		}
		return line, nil
	}
	var n int
	if _, err := fmt.Sscanf(line, "Content-Length: %d\r", &n); err != nil {
		return "", fmt.Errorf("header %q: %w", line, err)
	}
	body := make([]byte, n+2)
	if _, err := io.ReadFull(r, body); err != nil {
		return "", err
	}
	if string(body[:2]) != "\r\n" {
		return "", fmt.Errorf("header is not followed by a blank line, but %q", body)
	}
	return string(body[2:]), nil
}
