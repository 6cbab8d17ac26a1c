//go:build linux

package main

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"time"

	"mcpwire/bench/loop"
)

// clientPeers are programs that call with a library, as package loop says.
var clientPeers = []peer{
	{name: ours, pkg: "./client"},
	{name: "go-sdk", pkg: "./peers/gosdkclient"},
	{name: "mcp-go", pkg: "./peers/mcpgoclient"},
}

// A clientConn is a running client program.
type clientConn struct {
	cmd *exec.Cmd
	in  *os.File
	out *bufio.Reader
}

// measureClients loads mcpwire's server with each client, in turn, with one and with many calls in flight.
func measureClients(o options, e era, dir string) ([]table, error) {
	server := filepath.Join(dir, ours+"-server")
	if err := compile(server, "./server"); err != nil {
		return nil, err
	}
	var peers []peer
	var conns []*clientConn
	defer func() {
		for _, c := range conns {
			c.close()
		}
	}()
	for _, p := range clientPeers {
		p.path = filepath.Join(dir, p.name+"-client")
		if err := compile(p.path, p.pkg); err != nil {
			return nil, err
		}
		c, err := startClient(p.path, server, e)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", p.name, err)
		}
		peers, conns = append(peers, p), append(conns, c)
	}
	var tables []table
	for _, window := range []int{1, 64} {
		t := table{kind: "client", era: e.name, window: window, peers: peers, samples: make([][]sample, len(peers))}
		for round := range o.rounds + 1 {
			for i := range conns {
				who := turn(round, i, len(conns))
				s, err := conns[who].load(window, o.block, o.text)
				if err != nil {
					return nil, fmt.Errorf("%s: %w", peers[who].name, err)
				}
				if round > 0 { // the first one warms up
					t.samples[who] = append(t.samples[who], s)
				}
			}
		}
		tables = append(tables, t)
	}
	return tables, nil
}

func compile(path, pkg string) error {
	cmd := exec.Command("go", "build", "-o", path, pkg)
	cmd.Stdout, cmd.Stderr = os.Stderr, os.Stderr
	if err := cmd.Run(); err != nil {
		return fmt.Errorf("building %s (is this the folder bench?): %w", pkg, err)
	}
	return nil
}

func startClient(path, server string, e era) (*clientConn, error) {
	theirIn, in, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	out, theirOut, err := os.Pipe()
	if err != nil {
		return nil, errors.Join(err, theirIn.Close(), in.Close())
	}
	cmd := exec.Command(path, "-server", server, "-era", e.name)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = theirIn, theirOut, os.Stderr
	if err := errors.Join(cmd.Start(), theirIn.Close(), theirOut.Close()); err != nil {
		return nil, errors.Join(err, in.Close(), out.Close())
	}
	return &clientConn{cmd: cmd, in: in, out: bufio.NewReader(out)}, nil
}

// close ends the program's input and waits for it.
func (c *clientConn) close() error {
	err := c.in.Close()
	timer := time.AfterFunc(5*time.Second, func() { c.cmd.Process.Kill() })
	defer timer.Stop()
	return errors.Join(err, c.cmd.Wait())
}

// load has the client call for the duration. The CPU time is the client's.
func (c *clientConn) load(window int, duration time.Duration, text int) (sample, error) {
	before, err := cpuTime(c.cmd.Process.Pid)
	if err != nil {
		return sample{}, err
	}
	if _, err := fmt.Fprintf(c.in, "run %d %d %d\n", window, duration.Milliseconds(), text); err != nil {
		return sample{}, err
	}
	line, err := c.out.ReadBytes('\n')
	if err != nil {
		return sample{}, err
	}
	var r loop.Result
	if err := json.Unmarshal(line, &r); err != nil || r.Calls == 0 {
		return sample{}, fmt.Errorf("bad answer %.100q", line)
	}
	after, err := cpuTime(c.cmd.Process.Pid)
	if err != nil {
		return sample{}, err
	}
	return sample{p50: time.Duration(r.P50), cpu: (after - before) / time.Duration(r.Calls)}, nil
}
