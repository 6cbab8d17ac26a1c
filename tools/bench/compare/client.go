//go:build linux

package main

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"time"

	"mcpwire/tools/bench/loop"
)

// clients are programs that call with a library, as package loop says, the limit
// first.
var clients = []peer{
	{name: "rawclient", pkg: "./peers/rawclient"},
	{name: ours, pkg: "./client"},
	{name: "go-sdk", pkg: "./peers/gosdkclient"},
	{name: "mcp-go", pkg: "./peers/mcpgoclient"},
}

// measureClients loads the server that costs least with each client, on stdio
// and over HTTP.
func measureClients(r *run) ([]table, error) {
	peers, err := r.build(clients)
	if err != nil {
		return nil, err
	}
	pipe, err := r.compile("./rawpipe")
	if err != nil {
		return nil, err
	}
	web, err := r.compile("./peers/rawhttp")
	if err != nil {
		return nil, err
	}
	var tables []table
	for _, transport := range []string{"stdio", "HTTP"} {
		for _, e := range eras {
			for _, window := range []int{1, 64} {
				c := comparison{title: fmt.Sprintf("clients on %s, %s era, %d in flight", transport, e.name, window), time: "p50", peers: peers}
				err := place(r.pin && window == 1, func() (err error) {
					server := pipe
					if transport == "HTTP" {
						s, err := startSite(peer{name: "rawhttp", path: web})
						if err != nil {
							return err
						}
						defer s.close()
						server = s.url()
					}
					c.samples, err = r.measureClients(e, peers, server, window)
					return err
				})
				if err != nil {
					return nil, fmt.Errorf("%s: %w", c.title, err)
				}
				tables = append(tables, c.table())
			}
		}
	}
	return tables, nil
}

// measureClients connects each client to the server, which is a command or a URL,
// and has them call in turn.
func (r *run) measureClients(e era, peers []peer, server string, window int) ([][]sample, error) {
	var conns []*clientConn
	defer func() {
		for _, c := range conns {
			c.close()
		}
	}()
	for _, p := range peers {
		c, err := startClient(p.path, server, e)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", p.name, err)
		}
		conns = append(conns, c)
	}
	return r.interleave(len(conns), func(who int) (sample, error) {
		s, err := conns[who].load(window, r.block, r.text)
		if err != nil {
			return s, fmt.Errorf("%s: %w", peers[who].name, err)
		}
		return s, nil
	})
}

// A clientConn is a running client program.
type clientConn struct {
	cmd *exec.Cmd
	in  *os.File
	out *bufio.Reader
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
	return sample{time: time.Duration(r.P50), cpu: (after - before) / time.Duration(r.Calls)}, nil
}
