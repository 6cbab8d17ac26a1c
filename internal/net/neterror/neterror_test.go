package neterror_test

import (
	"errors"
	"io"
	"net"
	"os"
	"syscall"
	"testing"

	"mcpwire/internal/net/neterror"
)

// TestNumbers checks error numbers of Unix and of Winsock, wrapped as package net wraps them.
func TestNumbers(t *testing.T) {
	for _, test := range []struct {
		err            error
		refused, reset bool
	}{
		{syscall.ECONNREFUSED, true, false},
		{syscall.Errno(10061), true, false},
		{syscall.ECONNRESET, false, true},
		{syscall.Errno(10054), false, true},
		{syscall.Errno(10053), false, true},
		{syscall.EPIPE, false, false},
		{syscall.Errno(10060), false, false}, // WSAETIMEDOUT
		{io.EOF, false, false},
		{errors.New("connection refused"), false, false},
		{nil, false, false},
	} {
		for _, err := range []error{test.err, &net.OpError{Op: "dial", Err: os.NewSyscallError("connectex", test.err)}} {
			if refused, reset := neterror.IsRefused(err), neterror.IsReset(err); refused != test.refused || reset != test.reset {
				t.Errorf("%v: refused %v, reset %v", err, refused, reset)
			}
		}
	}
}

// TestReal checks the errors of real system calls.
func TestReal(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	l.Close()
	if _, err := net.Dial("tcp", l.Addr().String()); !neterror.IsRefused(err) {
		t.Errorf("dial a port without a listener: %v", err)
	}
	if l, err = net.Listen("tcp", "127.0.0.1:0"); err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	c, err := net.Dial("tcp", l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	accepted, err := l.Accept()
	if err != nil {
		t.Fatal(err)
	}
	accepted.(*net.TCPConn).SetLinger(0)
	accepted.Close()
	if _, err := c.Read(make([]byte, 1)); !neterror.IsReset(err) {
		t.Errorf("read from a reset connection: %v", err)
	}
}
