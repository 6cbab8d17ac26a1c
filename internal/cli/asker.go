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

	mu    sync.Mutex
	lines chan readLine // nil before the first question
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
	if a.lines == nil {
		a.lines = make(chan readLine)
		go a.read()
	}
	if _, err := io.WriteString(a.out, prompt); err != nil {
		return "", err
	}
	select {
	case l, ok := <-a.lines:
		if !ok {
			return "", io.EOF
		}
		return l.text, l.err
	case <-ctx.Done():
		_, _ = io.WriteString(a.out, "\n") // what comes next is no answer to the prompt
		return "", ctx.Err()
	}
}

func (a *lineAsker) read() {
	defer close(a.lines)
	s := bufio.NewScanner(a.in)
	s.Buffer(nil, maxAnswer)
	for s.Scan() {
		a.lines <- readLine{text: strings.TrimSuffix(s.Text(), "\r")}
	}
	if err := s.Err(); err != nil {
		a.lines <- readLine{err: err}
	}
}
