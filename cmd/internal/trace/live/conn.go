package live

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"sync"
	"time"

	"mcpwire/capture"
	"mcpwire/internal/net/neterror"
)

// Version is the version of the protocol. It increases with incompatible changes.
const Version = 1

const (
	maxGreeting = 64 << 10              // bytes
	maxControl  = 6*MaxHeldData + 4<<10 // a decision with a message, whose escapes may be long
)

// ErrGreeting is wrapped by the error for an invalid greeting or one of another version.
var ErrGreeting = errors.New("live: no greeting from a tap")

// A Greeting describes a tap to a viewer that connects.
type Greeting struct {
	Version int `json:"mcpwire"`
	// Capture is the id of the capture, as in its head.
	Capture string `json:"capture"`
	// Name is the name of the server.
	Name string `json:"name,omitempty"`
	// Transport is what the tap records.
	Transport capture.Transport `json:"transport,omitempty"`
	// PID is the process id of the tap.
	PID int `json:"pid"`
	// File is the absolute path of the capture. Empty means none.
	File string `json:"file,omitempty"`
	// Next is the number of the first event that the tap sends, unless that event is lost.
	Next uint64 `json:"next"`
	// Restart reports whether the tap restarts the server on request.
	Restart bool `json:"restart,omitempty"`
	// Intercept reports whether the tap can hold messages.
	Intercept bool `json:"intercept,omitempty"`
}

// A control is a request of a viewer.
type control struct {
	Wake    bool `json:"wake,omitempty"`
	Restart bool `json:"restart,omitempty"`
	// Held makes the tap send what it holds in place of events.
	Held      bool      `json:"held,omitempty"`
	Intercept *Decision `json:"intercept,omitempty"`
}

const (
	greetingTimeout = 5 * time.Second // for the tap to send it
	controlTimeout  = 2 * time.Second // for a control line
)

// ErrStale is wrapped by the error for a socket of a tap that has ended. The socket has been
// removed.
var ErrStale = errors.New("live: the tap has ended")

// A Conn is a connection to a running tap. Reading from it yields a capture.
type Conn struct {
	conn     net.Conn
	in       *bufio.Reader
	greeting Greeting
	stop     func() bool

	// mu guards writes.
	mu sync.Mutex
}

// Dial connects to a tap and reads its greeting. The connection is closed when ctx ends. The error
// may wrap [ErrStale], [ErrGreeting] or [ErrNotPrivate].
func Dial(ctx context.Context, path string) (*Conn, error) {
	if err := checkPrivate(filepath.Dir(path)); err != nil {
		return nil, err
	}
	nc, err := connect(path)
	if err != nil {
		return nil, err
	}
	c := &Conn{conn: nc, in: bufio.NewReaderSize(nc, maxGreeting)}
	c.stop = context.AfterFunc(ctx, func() { nc.Close() })
	if err := c.readGreeting(); err != nil {
		c.Close()
		return nil, err
	}
	return c, nil
}

// connect connects to a socket of the user and removes it if it refuses connections.
func connect(path string) (net.Conn, error) {
	info, err := os.Lstat(path)
	if err != nil {
		return nil, staleError(path, err)
	}
	// On Windows, sockets are irregular files.
	if info.Mode().Type()&(fs.ModeSocket|fs.ModeIrregular) == 0 || !owned(info) {
		return nil, fmt.Errorf("%s: %w", path, ErrNotPrivate)
	}
	c, err := net.DialTimeout("unix", path, greetingTimeout)
	if err != nil && neterror.IsRefused(err) {
		_ = os.Remove(path) // someone else may have removed it
		return nil, fmt.Errorf("%s: %w", path, ErrStale)
	}
	if err != nil {
		return nil, staleError(path, err)
	}
	return c, nil
}

func staleError(path string, err error) error {
	if errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("%s: %w", path, ErrStale)
	}
	return err
}

// readGreeting reads and checks the greeting.
func (c *Conn) readGreeting() error {
	if err := c.conn.SetReadDeadline(time.Now().Add(greetingTimeout)); err != nil {
		return err
	}
	line, err := c.in.ReadSlice('\n')
	if err != nil {
		return fmt.Errorf("%w: %w", ErrGreeting, err)
	}
	if err := json.Unmarshal(line, &c.greeting); err != nil {
		return fmt.Errorf("%w: %w", ErrGreeting, err)
	}
	if c.greeting.Version != Version || c.greeting.Capture == "" {
		return fmt.Errorf("%w: version %d, where this is %d", ErrGreeting, c.greeting.Version, Version)
	}
	return c.conn.SetReadDeadline(time.Time{})
}

// Greeting returns the greeting of the tap.
func (c *Conn) Greeting() Greeting { return c.greeting }

// Read reads the lines that the tap sends: the head of the capture, then events from Greeting.Next
// on. It returns io.EOF or another error when the tap ends or disconnects the viewer.
func (c *Conn) Read(p []byte) (int, error) { return c.in.Read(p) }

// Wake makes the tap send an empty line for new events in place of the events. Lines sent before
// that still arrive.
func (c *Conn) Wake() error { return c.sendControl(control{Wake: true}) }

// Restart makes the tap restart its server. It has no effect unless Greeting.Restart is set.
func (c *Conn) Restart() error { return c.sendControl(control{Restart: true}) }

func (c *Conn) sendControl(what control) error {
	line, err := json.Marshal(what)
	if err != nil {
		return err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if err := c.conn.SetWriteDeadline(time.Now().Add(controlTimeout)); err != nil {
		return err
	}
	_, err = c.conn.Write(append(line, '\n'))
	return err
}

// Close closes the connection.
func (c *Conn) Close() error {
	c.stop()
	return c.conn.Close()
}
