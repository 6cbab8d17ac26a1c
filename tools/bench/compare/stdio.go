//go:build linux

package main

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"syscall"
)

// stdioServers are the servers on stdio, the limit first.
var stdioServers = []peer{
	{name: "rawpipe", pkg: "./rawpipe"},
	{name: ours, pkg: "./server"},
	{name: "go-sdk", pkg: "./peers/gosdk"},
	{name: "mcp-go", pkg: "./peers/mcpgo"},
}

func measureStdio(r *run) ([]table, error) {
	peers, err := r.build(stdioServers)
	if err != nil {
		return nil, err
	}
	var tables []table
	for _, e := range eras {
		measured, err := r.measureStdio(e, peers)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", e.name, err)
		}
		tables = append(tables, measured...)
	}
	return tables, nil
}

// measureStdio loads a process of each peer as the era has it, with one and with
// many calls in flight.
func (r *run) measureStdio(e era, peers []peer) ([]table, error) {
	var conns []*conn
	defer func() {
		for _, c := range conns {
			c.close()
		}
	}()
	for _, p := range peers {
		c, err := p.start(e, r.echo)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", p.name, err)
		}
		conns = append(conns, c)
	}
	var tables []table
	for _, window := range []int{1, 64} {
		samples, err := r.interleave(len(conns), func(who int) (sample, error) {
			s, err := conns[who].load(window, r.block, r.pin && window == 1)
			if err != nil {
				return s, fmt.Errorf("%s: %w", peers[who].name, err)
			}
			return s, nil
		})
		if err != nil {
			return nil, err
		}
		c := comparison{
			title: fmt.Sprintf("servers, %s era, %d in flight", e.name, window),
			time:  "p50", peers: peers, samples: samples,
		}
		tables = append(tables, c.table())
	}
	return tables, nil
}

// start runs the peer and opens a session of the era with it, for calls that
// carry the given text.
func (p peer) start(e era, text string) (*conn, error) {
	cmd := exec.Command(p.path)
	cmd.Stderr = os.Stderr
	return startConn(cmd, e, text)
}

// startConn is start for any command.
func startConn(cmd *exec.Cmd, e era, text string) (*conn, error) {
	theirIn, out, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	in, theirOut, err := os.Pipe()
	if err != nil {
		return nil, errors.Join(err, theirIn.Close(), out.Close())
	}
	cmd.Stdin, cmd.Stdout = theirIn, theirOut
	err = errors.Join(cmd.Start(), theirIn.Close(), theirOut.Close())
	if err != nil {
		return nil, errors.Join(err, in.Close(), out.Close())
	}
	c, err := openConn(cmd, in, out, e, text)
	if err != nil {
		c.close()
		return nil, err
	}
	return c, nil
}

// openConn opens a session by the pipes of a process that runs. The conn must be closed even if
// that fails.
func openConn(cmd *exec.Cmd, in, out *os.File, e era, text string) (*conn, error) {
	c := newConn(cmd, in, out, e, text)
	return c, errors.Join(syscall.SetNonblock(c.outFD, true), c.open(e))
}
