package call

import (
	"context"
	"errors"
	"io"
	"os"
	"strings"
	"sync"

	"golang.org/x/term"

	"mcpwire/cmd/internal/cli/kit"
	"mcpwire/cmd/internal/exit"
)

const shellPrompt = "mcp> "

// A termSource reads commands from a terminal, with editing and completion.
type termSource struct {
	in, out *os.File
	t       *term.Terminal
	words   *vocabulary

	mu sync.Mutex
	// reading is true while a line is being edited.
	reading bool
}

// newTermSource returns a termSource and makes the notes print around the line that is being
// edited.
func newTermSource(e *kit.Env, n *kit.Notes, words *vocabulary) *termSource {
	s := &termSource{in: e.Stdin, words: words}
	s.out, _ = e.Stderr.(*os.File) // it is a terminal
	s.t = term.NewTerminal(struct {
		io.Reader
		io.Writer
	}{&keys{in: e.Stdin}, s.out}, shellPrompt)
	s.t.AutoCompleteCallback = s.complete
	n.W = s
	if n.Status != nil {
		n.Status.W = s
	}
	return s
}

// Terminal returns the terminal that Write writes to.
func (s *termSource) Terminal() *os.File { return s.out }

func (s *termSource) interactive() bool { return true }

// Write implements io.Writer for output other than the line that is being edited.
func (s *termSource) Write(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.reading {
		return s.t.Write(p)
	}
	return s.out.Write(p)
}

func (s *termSource) failed(err error) {
	if errors.Is(err, context.Canceled) {
		_, _ = io.WriteString(s, "interrupted\n")
		return
	}
	_, _ = io.WriteString(s, exit.Text(err))
}

func (s *termSource) line(ctx context.Context) (string, error) { return s.read(ctx, shellPrompt) }

// ask is an AskFunc. Only the last line of the prompt is part of the edited line.
func (s *termSource) ask(ctx context.Context, prompt string) (string, error) {
	at := strings.LastIndexByte(prompt, '\n') + 1
	if _, err := io.WriteString(s, prompt[:at]); err != nil {
		return "", err
	}
	history := s.t.History
	s.t.History = noHistory{}
	defer func() { s.t.History = history }()
	return s.read(ctx, prompt[at:])
}

// A noHistory keeps answers, which may be secret, out of the history.
type noHistory struct{}

func (noHistory) Add(string)    {}
func (noHistory) Len() int      { return 0 }
func (noHistory) At(int) string { return "" }

type termLine struct {
	text string
	err  error
}

// read edits a line. If ctx ends, it restores the terminal at once and leaves behind the goroutine
// that reads, which can't be interrupted.
func (s *termSource) read(ctx context.Context, prompt string) (string, error) {
	state, err := term.MakeRaw(int(s.in.Fd()))
	if err != nil {
		return "", err
	}
	if w, h, err := term.GetSize(int(s.out.Fd())); err == nil && w > 0 && h > 0 {
		_ = s.t.SetSize(w, h) // a wrong size only looks bad
	}
	defer readEscapes(s.out)()
	s.t.SetPrompt(prompt)
	s.setReading(true)
	defer s.setReading(false)
	result := make(chan termLine, 1)
	go func() {
		text, err := s.t.ReadLine()
		result <- termLine{text, err}
	}()
	defer func() { _ = term.Restore(int(s.in.Fd()), state) }()
	select {
	case l := <-result:
		if errors.Is(l.err, term.ErrPasteIndicator) {
			l.err = nil
		}
		if errors.Is(l.err, io.EOF) {
			_, _ = io.WriteString(s.out, "\r\n")
		}
		return l.text, l.err
	case <-ctx.Done():
		return "", ctx.Err()
	}
}

func (s *termSource) setReading(on bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.reading = on
}

// complete is the terminal's AutoCompleteCallback.
func (s *termSource) complete(line string, pos int, key rune) (string, int, bool) {
	if key != '\t' {
		return "", 0, false
	}
	line, pos, choices := s.words.complete(line, pos)
	if choices != nil {
		const most = 60
		text := strings.Join(choices[:min(len(choices), most)], "  ")
		if len(choices) > most {
			text += "  …"
		}
		_, _ = s.t.Write([]byte(text + "\n"))
	}
	return line, pos, true
}

// keys reads a terminal. It makes Ctrl-C, which the line editor takes for the end of input, empty
// the line as in other shells.
type keys struct {
	in   io.Reader
	rest []byte
}

// emptyLine is the keys that empty the line: go to its end, and delete everything before.
const emptyLine = "\x05\x15"

// Read implements io.Reader.
func (k *keys) Read(p []byte) (int, error) {
	if len(k.rest) == 0 {
		buf := make([]byte, len(p))
		n, err := k.in.Read(buf)
		if err != nil {
			return 0, err
		}
		k.rest = []byte(strings.ReplaceAll(string(buf[:n]), "\x03", emptyLine))
	}
	n := copy(p, k.rest)
	k.rest = k.rest[n:]
	return n, nil
}
