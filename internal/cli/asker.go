package cli

import (
	"bufio"
	"context"
	"io"
	"strings"
	"sync"
)

// A lineAsker asks the user by lines. It may be used by many goroutines at once; questions wait for each other.
type lineAsker struct {
	in  io.Reader
	out io.Writer

	mu   sync.Mutex
	scan *bufio.Scanner
	// next gets the line that is being read; nil if none is. A line is only read for a question:
	// whoever else reads the input afterwards gets what the user types then.
	next chan readLine
}

type readLine struct {
	text string
	err  error
}

// maxAnswer is how long a line may be, in bytes.
const maxAnswer = 1 << 20

// ask shows a prompt and returns the next line. When ctx ends it does not wait any longer; what is typed then is the answer to the next question. What
// reads the input cannot be interrupted and is left behind when the process ends.
func (a *lineAsker) ask(ctx context.Context, prompt string) (string, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if _, err := io.WriteString(a.out, prompt); err != nil {
		return "", err
	}
	if a.next == nil {
		if a.scan == nil {
			a.scan = bufio.NewScanner(a.in)
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
		_, _ = io.WriteString(a.out, "\n") // what comes next is no answer to the prompt
		return "", ctx.Err()
	}
}

// readOne returns the next line; io.EOF at the end.
func readOne(s *bufio.Scanner) readLine {
	if s.Scan() {
		return readLine{text: strings.TrimSuffix(s.Text(), "\r")}
	}
	if err := s.Err(); err != nil {
		return readLine{err: err}
	}
	return readLine{err: io.EOF}
}
