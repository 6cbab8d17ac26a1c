package kit

import (
	"bufio"
	"context"
	"io"
	"strings"
	"sync"
)

// A Prompter asks the user for lines. It is safe for concurrent use; questions are asked one at
// a time.
type Prompter struct {
	In  io.Reader
	Out io.Writer

	mu   sync.Mutex
	scan *bufio.Scanner
	// next receives the line that is being read. It is nil while no read is running. A read starts
	// only for a question, so other readers get the input that the user types afterwards.
	next chan readLine
}

type readLine struct {
	text string
	err  error
}

// maxAnswer limits the length of a line, in bytes.
const maxAnswer = 1 << 20

// Ask shows a prompt and returns the next line. It stops waiting when ctx ends; the line that the
// user types then answers the next question. A read cannot be interrupted: its goroutine lasts
// until the process ends.
func (a *Prompter) Ask(ctx context.Context, prompt string) (string, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if _, err := io.WriteString(a.Out, prompt); err != nil {
		return "", err
	}
	if a.next == nil {
		if a.scan == nil {
			a.scan = bufio.NewScanner(a.In)
			a.scan.Buffer(nil, maxAnswer)
		}
		next := make(chan readLine, 1)
		a.next = next
		go func() { next <- readOne(a.scan) }()
	}
	select {
	case l := <-a.next:
		a.next = nil
		return l.text, l.err
	case <-ctx.Done():
		// Later input does not answer this prompt.
		_, _ = io.WriteString(a.Out, "\n")
		return "", ctx.Err()
	}
}

// readOne returns the next line, or io.EOF at the end of input.
func readOne(s *bufio.Scanner) readLine {
	if s.Scan() {
		return readLine{text: strings.TrimSuffix(s.Text(), "\r")}
	}
	if err := s.Err(); err != nil {
		return readLine{err: err}
	}
	return readLine{err: io.EOF}
}
