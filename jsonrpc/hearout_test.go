package jsonrpc

import (
	"errors"
	"io"
	"testing"
	"testing/synctest"
	"time"
)

// A failingFramer is to a peer that does not read any more, and still says something.
type failingFramer struct {
	words  []string // each after a while; then, it says nothing
	ends   bool     // after the last
	closed chan struct{}
}

var errGone = errors.New("gone")

func (f *failingFramer) WriteFrame([]byte) error { return errGone }

func (f *failingFramer) ReadFrame() ([]byte, error) {
	if len(f.words) == 0 {
		if !f.ends {
			<-f.closed
		}
		return nil, io.EOF
	}
	<-time.After(drainInputTimeout / 4)
	frame := []byte(f.words[0])
	f.words = f.words[1:]
	return frame, nil
}

func (f *failingFramer) Close() error {
	close(f.closed)
	return nil
}

// What a peer has written is read, though nothing can be written any more; but it is not waited for for long.
func TestHearOut(t *testing.T) {
	word := `{"jsonrpc":"2.0","method":"farewell"}`
	tests := []struct {
		name string
		ends bool
		want time.Duration
	}{
		{"the peer has ended", true, drainInputTimeout / 2},
		{"it goes on", false, drainInputTimeout},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				heard := 0
				f := &failingFramer{words: []string{word, word}, ends: tt.ends, closed: make(chan struct{})}
				c := NewConn(f, &Options{Trace: func(dir Direction, message []byte) {
					if dir == Incoming && string(message) == word {
						heard++
					}
				}})
				if err := c.Notify(t.Context(), "m", nil); err != nil {
					t.Fatal(err)
				}
				synctest.Wait() // it could not be written
				began := time.Now()
				if err := c.Run(t.Context()); !errors.Is(err, errGone) {
					t.Errorf("it ended with %v", err)
				}
				if took := time.Since(began); took != tt.want {
					t.Errorf("it went on for %v, want %v", took, tt.want)
				}
				if heard != 2 {
					t.Errorf("%d of 2 messages were read", heard)
				}
			})
		})
	}
}
