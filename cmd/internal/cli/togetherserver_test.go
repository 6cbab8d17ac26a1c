package cli

import (
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"
)

// A script that needs to know which processes of a server run at the same time runs this program
// with a variable: mcpwire check -e MCPWIRE_TEST_SERVER=together -e 'MCPWIRE_TEST_TOGETHER=DIR 1 5'
// -- mcpwire serve
func init() {
	if os.Getenv("MCPWIRE_TEST_SERVER") == "together" {
		if err := connectTogether(strings.Fields(os.Getenv("MCPWIRE_TEST_TOGETHER"))); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
	}
}

// connectTogether numbers the processes of a server by files in a folder, and returns when all
// processes of a group have started. Each argument after the folder is the last number of a group:
// with 1 5, the first process returns at once, the next four when all of them have started, and
// later ones at once.
func connectTogether(args []string) error {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	defer l.Close()
	n, err := takeNumber(args[0], l.Addr().String())
	if err != nil {
		return err
	}
	first := 1
	for _, arg := range args[1:] {
		last, err := strconv.Atoi(arg)
		if err != nil {
			return err
		}
		if n <= last {
			return waitForGroup(l, n, last-first+1, filepath.Join(args[0], strconv.Itoa(first)))
		}
		first = last + 1
	}
	return nil
}

// takeNumber creates a file with text whose name is the next number, and returns the number.
func takeNumber(dir, text string) (int, error) {
	f, err := os.CreateTemp(dir, "new")
	if err != nil {
		return 0, err
	}
	defer os.Remove(f.Name())
	_, err = f.WriteString(text)
	if err := errors.Join(err, f.Close()); err != nil {
		return 0, err
	}
	for n := 1; ; n++ {
		if err := os.Link(f.Name(), filepath.Join(dir, strconv.Itoa(n))); err == nil || !os.IsExist(err) {
			return n, err
		}
	}
}

// waitForGroup waits until all processes of a group have called it. The first process, whose file
// has the address of its listener, accepts a connection of each other one and then closes all of
// them.
func waitForGroup(l net.Listener, n, size int, firstFile string) error {
	deadline := time.Now().Add(time.Minute)
	if filepath.Base(firstFile) == strconv.Itoa(n) {
		if err := l.(*net.TCPListener).SetDeadline(deadline); err != nil {
			return err
		}
		for range size - 1 {
			c, err := l.Accept()
			if err != nil {
				return err
			}
			defer c.Close()
		}
		return nil
	}
	address, err := os.ReadFile(firstFile)
	if err != nil {
		return err
	}
	c, err := net.DialTimeout("tcp", string(address), time.Until(deadline))
	if err != nil {
		return err
	}
	defer c.Close()
	if err := c.SetDeadline(deadline); err != nil {
		return err
	}
	_, err = io.Copy(io.Discard, c)
	return err
}
