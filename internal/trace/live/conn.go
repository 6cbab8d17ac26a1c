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

	"mcpwire/internal/net/neterror"
)

// Version is the version of the protocol. It grows when a viewer of the old one would be misled.
const Version = 1

const (
	maxGreeting = 64 << 10 // bytes
	maxControl  = 4 << 10
)

// ErrGreeting is wrapped by the error for a socket whose greeting is not one of this package, or of a newer version.
var ErrGreeting = errors.New("live: no greeting of a tap")

// A Greeting is what a tap says of itself when a viewer connects.
type Greeting struct {
	Version   int    `json:"mcpwire"`
	Capture   string `json:"capture"`             // its id, as in its head
	Name      string `json:"name,omitempty"`      // of the server
	Transport string `json:"transport,omitempty"` // "stdio" or "http"
	PID       int    `json:"pid"`                 // of the tap
	File      string `json:"file,omitempty"`      // the capture, an absolute path; "" if there is none
	Next      uint64 `json:"next"`                // number of the first event that is sent; a greater one if that one gets lost
	Restart   bool   `json:"restart,omitempty"`   // whether it starts the server again when it is asked to
}

// A control is what a viewer may ask for.
type control struct {
	Wake    bool `json:"wake,omitempty"`
	Restart bool `json:"restart,omitempty"`
}

const (
	greetingTimeout = 5 * time.Second // that a tap may take for it
	controlTimeout  = 2 * time.Second // for a control line
)

// ErrStale is wrapped by the error for a socket of a tap that has died. It was removed.
var ErrStale = errors.New("live: the tap has ended")

// A Conn is a connection to a running tap. It is read as a capture.
type Conn struct {
	conn     net.Conn
	in       *bufio.Reader
	greeting Greeting
	stop     func() bool

	mu sync.Mutex // of what is written
}

// Dial connects to a tap, and reads its greeting. The connection is closed when ctx ends. The error may wrap [ErrStale], [ErrGreeting] or [ErrNotPrivate].
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

// connect connects to a socket of the user's, and removes it if nobody listens.
func connect(path string) (net.Conn, error) {
	info, err := os.Lstat(path)
	if err != nil {
		return nil, staleError(path, err)
	}
	if info.Mode().Type()&(fs.ModeSocket|fs.ModeIrregular) == 0 || !owned(info) { // Windows has sockets that are irregular files
		return nil, fmt.Errorf("%s: %w", path, ErrNotPrivate)
	}
	c, err := net.DialTimeout("unix", path, greetingTimeout)
	if err != nil && neterror.IsRefused(err) {
		_ = os.Remove(path) // another may have been faster
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

// readGreeting reads the greeting.
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

// Greeting returns what the tap has said of itself.
func (c *Conn) Greeting() Greeting { return c.greeting }

// Read reads the lines that the tap sends: the capture from its head on, without the events before Greeting.Next. It ends with io.EOF, or another error, when the tap does, or has cut the connection.
func (c *Conn) Read(p []byte) (int, error) { return c.in.Read(p) }

// Wake has the tap send no more lines, but an empty one when there is something new. Lines that are under way still come.
func (c *Conn) Wake() error { return c.sendControl(control{Wake: true}) }

// Restart has the tap start its server again. Greeting.Restart says whether it does.
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

// Close ends the connection.
func (c *Conn) Close() error {
	c.stop()
	return c.conn.Close()
}
