package server_test

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// A wire is the client's end of a connection, and the server's.
type wire struct {
	r      io.Reader
	w      io.WriteCloser // closing it is the end of input
	server io.ReadWriteCloser
	close  func()
}

// transports are what transcripts are played over.
var transports = []struct {
	name   string
	bubble bool // it works in a synctest bubble
	open   func(t *testing.T) *wire
}{
	{"net.Pipe", true, openNetPipe},
	{"os.Pipe", false, openOSPipe},
	{"unix", false, openUnix},
}

// A duplex is two one-way streams.
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

func newWire(in io.ReadCloser, inFar io.WriteCloser, outFar io.ReadCloser, out io.WriteCloser) *wire {
	server := &duplex{in, out, []io.Closer{in, out}}
	return &wire{r: outFar, w: inFar, server: server, close: func() { inFar.Close(); outFar.Close() }}
}

func openNetPipe(*testing.T) *wire {
	in, inFar := net.Pipe()
	out, outFar := net.Pipe()
	return newWire(in, inFar, outFar, out)
}

func openOSPipe(t *testing.T) *wire {
	in, inFar, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	outFar, out, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	return newWire(in, inFar, outFar, out)
}

func openUnix(t *testing.T) *wire {
	dir, err := os.MkdirTemp("", "wire") // t.TempDir is too long for an address
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

// frameText puts the framing around a message.
func frameText(framing, message string) string {
	if framing == "header" {
		return fmt.Sprintf("Content-Length: %d\r\n\r\n%s", len(message), message)
	}
	return message + "\n"
}

// readFrame reads one message of the framing. It knows nothing of package jsonrpc, and takes nothing but what the framing says.
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
