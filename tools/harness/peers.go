//go:build linux

package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os/exec"
	"path/filepath"
	"strings"
	"time"
)

// A peer is a client on an SDK of others, in a separate process.
type peer struct {
	name  string
	cmd   *exec.Cmd
	stdin io.WriteCloser
	done  chan error
}

// stopPeer limits the time in which a peer ends.
const stopPeer = callTimeout + 5*time.Second

// startPeers starts clients that make calls behind the balancer. dir is the directory interop of the
// repository, with its Node modules.
func (l *load) startPeers(ctx context.Context, dir, tmp string) (peers []*peer, err error) {
	program := filepath.Join(tmp, "load")
	if _, err := command(ctx, dir, "go", "build", "-o", program, "./load"); err != nil {
		return nil, err
	}
	script := filepath.Join(dir, "ts", "load.mjs")
	for _, p := range []struct {
		name string
		args []string
	}{
		{"TypeScript 1", []string{"node", script, "1"}},
		{"TypeScript 2, legacy", []string{"node", script, "2"}},
		{"TypeScript 2, modern", []string{"node", script, "modern"}},
		{"go-sdk, legacy", []string{program, legacy}},
		{"go-sdk, modern", []string{program, modern}},
	} {
		started, err := l.startPeer(p.name, append(p.args, l.url()))
		if err != nil {
			stopPeers(peers)
			return nil, err
		}
		peers = append(peers, started)
	}
	return peers, nil
}

func (l *load) startPeer(name string, args []string) (*peer, error) {
	p := &peer{name: name, cmd: exec.Command(args[0], args[1:]...), done: make(chan error, 1)}
	var stderr strings.Builder
	p.cmd.Stderr = &stderr
	stdout, err := p.cmd.StdoutPipe()
	if err == nil {
		p.stdin, err = p.cmd.StdinPipe()
	}
	if err == nil {
		err = p.cmd.Start()
	}
	if err != nil {
		return nil, fmt.Errorf("start a client with %s: %w", name, err)
	}
	go func() {
		err := l.readPeer(name, stdout)
		text := ""
		if failed := p.cmd.Wait(); failed != nil {
			err = errors.Join(err, failed)
			text = stderr.String()
		}
		if err != nil {
			err = fmt.Errorf("%w: %.500s", err, text)
		}
		p.done <- err
	}()
	return p, nil
}

// readPeer records what a peer writes.
func (l *load) readPeer(name string, r io.Reader) error {
	lines := bufio.NewScanner(r)
	for lines.Scan() {
		var call struct {
			What, Error string
			MS          float64
		}
		if err := json.Unmarshal(lines.Bytes(), &call); err != nil {
			_, _ = io.Copy(io.Discard, r) // so that the peer ends
			return fmt.Errorf("%w in %.200q", err, lines.Bytes())
		}
		if strings.HasPrefix(call.Error, "foreign: ") {
			l.led.violation("%s: %s: %s", name, call.What, call.Error)
		}
		var err error
		if call.Error != "" {
			err = errors.New(call.Error)
		}
		l.led.took(name+" "+call.What, time.Duration(call.MS*float64(time.Millisecond)), err)
	}
	return lines.Err()
}

// stopPeers ends the peers after their current calls.
func stopPeers(peers []*peer) (err error) {
	for _, p := range peers {
		p.stdin.Close()
	}
	limit := time.After(stopPeer)
	for _, p := range peers {
		select {
		case failed := <-p.done:
			if failed != nil {
				err = errors.Join(err, fmt.Errorf("client with %s: %w", p.name, failed))
			}
		case <-limit:
			_ = p.cmd.Process.Kill() // it may have ended
			err = errors.Join(err, fmt.Errorf("client with %s does not end", p.name), <-p.done)
		}
	}
	return err
}
