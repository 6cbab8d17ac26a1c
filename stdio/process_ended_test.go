package stdio

import (
	"errors"
	"os"
	"testing"
	"testing/synctest"
	"time"
)

// TestReadLateStatus shows that the error of a server that has ended says so, even if a busy machine
// learns its status seconds later.
func TestReadLateStatus(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, w, err := os.Pipe()
		if err != nil {
			t.Fatal(err)
		}
		defer r.Close()
		w.Close()
		p := &Process{name: "server", stdout: r, exited: make(chan struct{}), done: make(chan struct{})}
		go func() {
			time.Sleep(exitWait - time.Millisecond)
			close(p.exited)
			time.Sleep(3 * time.Second)
			p.err = &ExitError{Name: "server", Code: -1}
			close(p.done)
		}()
		if _, err := p.Read(make([]byte, 1)); !errors.As(err, new(*ExitError)) {
			t.Errorf("got %v", err)
		}
	})
}
