//go:build linux

package main

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
)

// A peer is one program of those that are compared.
type peer struct {
	name string
	pkg  string   // in this module
	args []string // for its command line
	path string   // of the binary
}

// ours is the peer that others are compared with, in addition to the limit.
const ours = "mcpwire"

var peerNames = []string{ours, "go-sdk", "mcp-go", "mcp-remote", "supergateway", "mcp-proxy"}

// build compiles those of the peers that take part, which the limit, the first
// one, always does.
func (r *run) build(all []peer) ([]peer, error) {
	names, err := r.chosen()
	if err != nil {
		return nil, err
	}
	var peers []peer
	for i, p := range all {
		if i > 0 && !slices.Contains(names, p.name) {
			continue
		}
		if p.path, err = r.compile(p.pkg); err != nil {
			return nil, err
		}
		peers = append(peers, p)
	}
	return peers, nil
}

// chosen returns the names of the peers that take part.
func (r *run) chosen() ([]string, error) {
	names := strings.Split(r.peers, ",")
	for _, name := range names {
		if name != "" && !slices.Contains(peerNames, name) {
			return nil, fmt.Errorf("unknown peer %q: want one of %v", name, peerNames)
		}
	}
	return names, nil
}

// compile returns the path of a package's binary, which it makes at first.
func (r *run) compile(pkg string) (string, error) { return r.compileIn(".", pkg) }

// compileIn is compile for a package of the module in a folder.
func (r *run) compileIn(dir, pkg string) (string, error) {
	path := filepath.Join(r.dir, filepath.Base(pkg))
	if _, err := os.Stat(path); err == nil {
		return path, nil
	}
	cmd := exec.Command("go", "build", "-o", path, pkg)
	cmd.Dir = dir
	cmd.Stdout, cmd.Stderr = os.Stderr, os.Stderr
	if err := cmd.Run(); err != nil {
		return "", fmt.Errorf("building %s (is this the folder bench?): %w", pkg, err)
	}
	return path, nil
}
