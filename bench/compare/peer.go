//go:build linux

package main

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
)

// A peer is one server program.
type peer struct {
	name string
	pkg  string // in this module
	path string // of the binary
}

// The peers that ratios refer to.
const (
	ours  = "mcpwire"
	limit = "rawpipe"
)

var allPeers = []peer{
	{name: limit, pkg: "./rawpipe"},
	{name: ours, pkg: "./server"},
	{name: "go-sdk", pkg: "./peers/gosdk"},
	{name: "mcp-go", pkg: "./peers/mcpgo"},
}

func peerNames() []string {
	var names []string
	for _, p := range allPeers {
		names = append(names, p.name)
	}
	return names
}

// build compiles the named peers into dir.
func build(dir string, names []string) ([]peer, error) {
	var peers []peer
	for _, name := range names {
		i := slices.IndexFunc(allPeers, func(p peer) bool { return p.name == name })
		if i < 0 {
			return nil, fmt.Errorf("no peer is called %q; there are %v", name, peerNames())
		}
		p := allPeers[i]
		p.path = filepath.Join(dir, name)
		if err := compile(p.path, p.pkg); err != nil {
			return nil, err
		}
		peers = append(peers, p)
	}
	return peers, nil
}

// start runs the peer and opens a session of the era with it, for calls that
// carry the given text.
func (p peer) start(e era, text string) (*conn, error) {
	theirIn, out, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	in, theirOut, err := os.Pipe()
	if err != nil {
		return nil, errors.Join(err, theirIn.Close(), out.Close())
	}
	cmd := exec.Command(p.path)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = theirIn, theirOut, os.Stderr
	err = errors.Join(cmd.Start(), theirIn.Close(), theirOut.Close())
	if err != nil {
		return nil, errors.Join(err, in.Close(), out.Close())
	}
	c := newConn(cmd, in, out, e, text)
	if err := c.open(e); err != nil {
		c.close()
		return nil, err
	}
	return c, nil
}
