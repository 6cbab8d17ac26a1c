//go:build linux

package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"mcpwire/internal/test/upstream"
)

const (
	// hangingCalls are in flight when the node of the upstream is killed.
	hangingCalls = 2 * nodeCount
	// maxOwnerless is the bar for the time until the upstream runs at another node: the lease is free
	// five seconds after its holder is gone, or after the election of a leader of its stream, which
	// takes nine seconds at most.
	maxOwnerless = 14 * time.Second
)

// gatewayOwner kills the node that runs the upstream of three gateways.
func gatewayOwner(ctx context.Context, r *result) error {
	self, err := os.Executable()
	if err != nil {
		return err
	}
	file := filepath.Join(r.dir, "gateway.yaml")
	text := fmt.Sprintf("upstreams: {up: {command: [%q], env: {%s: '1'}, timeouts: {restart: 30s}}}\n", self, upstream.Variable)
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		return err
	}
	b, err := r.testbedWith(ctx, "--gateway", file)
	if err != nil {
		return err
	}
	defer b.close()
	rounds := r.rounds(3 * nodeCount)
	r.load = loadAverage()
	g := &gatewayWatch{r: r, b: b}
	for i := range rounds {
		if err := g.killOwner(ctx); err != nil {
			return fmt.Errorf("round %d: %w", i+1, err)
		}
	}
	r.figure("%d owners killed, %d calls in flight: %d ended with node lost, %d with another error", rounds, len(g.ended), g.lost, len(g.ended)-g.lost)
	r.bar("a call ends after at most", g.ended.percentile(100), 4*time.Second)
	r.bar("the upstream is back after at most", g.back.percentile(100), maxOwnerless)
	r.figure("half of the times after %v", g.back.percentile(50))
	epochs, err := g.epochs()
	r.figure("%d epochs", epochs)
	return err
}

// A gatewayWatch kills owners and sees who answers.
type gatewayWatch struct {
	r *result
	b *testbed

	// ended are the times of calls in flight, lost counts those that ended with node lost.
	ended times
	lost  int
	back  times
}

// where returns the process that answers, and the node that runs it.
func (g *gatewayWatch) where(ctx context.Context) (process int, owner *node, err error) {
	result, err := callModern(ctx, newHTTPClient(), g.b.balancer.url, "tools/call", "up__where", `{"name":"up__where","arguments":{}}`)
	if err != nil {
		return 0, nil, err
	}
	var parent int
	if _, err := fmt.Sscan(toolText(result), &process, &parent); err != nil {
		return 0, nil, fmt.Errorf("%w in %s", err, result)
	}
	for _, n := range g.b.nodes {
		if n.pid() == parent {
			return process, n, nil
		}
	}
	return process, nil, fmt.Errorf("a process of no node has answered: %s", result)
}

// killOwner kills the node that runs the upstream, in the middle of calls at all nodes, waits until
// it runs elsewhere, and starts the node again.
func (g *gatewayWatch) killOwner(ctx context.Context) error {
	process, owner, err := g.find(ctx, nil)
	if err != nil {
		return err
	}
	for range 2 * nodeCount { // at all nodes
		if again, other, err := g.where(ctx); err != nil || again != process || other != owner {
			g.r.led.violation("process %d of %v answers, and then process %d of %v: %v", process, owner.name, again, other, err)
		}
	}
	var endedAt time.Time // set before the channel is closed
	ended := make(chan struct{})
	var mu sync.Mutex
	var wg sync.WaitGroup
	for i := range hangingCalls {
		wg.Go(func() {
			ctx, cancel := context.WithTimeout(ctx, callTimeout)
			defer cancel()
			// Half of them at nodes that live on, the others wherever they get.
			client := newHTTPClient()
			if i%2 == 0 {
				client = &http.Client{Transport: toNode{client.Transport, g.other(owner, i).address}}
			}
			_, err := callModern(ctx, client, g.b.balancer.url, "tools/call", "up__hang", `{"name":"up__hang","arguments":{}}`)
			at := time.Now()
			<-ended
			mu.Lock()
			defer mu.Unlock()
			g.ended = append(g.ended, max(0, at.Sub(endedAt)))
			e, ok := errors.AsType[*wireError](err)
			switch {
			case err == nil:
				g.r.led.violation("a call that the killed node ran has a result")
			case ok && strings.Contains(string(e.Data), `"reason":"node lost","mayHaveRun":true`):
				g.lost++
			case ok:
				g.r.led.violation("a call at a node that lives ends with %v", err)
			}
		})
	}
	if err := sleep(ctx, time.Second); err != nil {
		return err
	}
	owner.kill()
	endedAt = time.Now()
	close(ended)
	_, next, err := g.find(ctx, owner)
	if err != nil {
		return err
	}
	g.back = append(g.back, time.Since(endedAt).Round(time.Millisecond))
	wg.Wait()
	if err := owner.start(); err != nil {
		return err
	}
	if err := owner.wait(ctx); err != nil {
		return err
	}
	if _, after, err := g.find(ctx, nil); err != nil || after != next {
		g.r.led.violation("the upstream moved from %s to %v when a node came back: %v", next.name, after, err)
	}
	return nil
}

// other returns a node that is not the given one.
func (g *gatewayWatch) other(not *node, i int) *node {
	for _, n := range append(g.b.nodes[i%nodeCount:], g.b.nodes...) {
		if n != not {
			return n
		}
	}
	return nil // not reached
}

// find waits until a process answers. None of the killed node may do so.
func (g *gatewayWatch) find(ctx context.Context, killed *node) (process int, owner *node, err error) {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	for {
		process, owner, err = g.where(ctx)
		if err == nil && owner == killed {
			g.r.led.violation("a process of a killed node has answered")
		}
		if err == nil {
			return process, owner, nil
		}
		if sleep(ctx, pollInterval) != nil {
			return 0, nil, fmt.Errorf("nothing runs the upstream: %w", err)
		}
	}
}

// epochs checks in the logs of the nodes that each epoch had one owner, and that they grew.
func (g *gatewayWatch) epochs() (count int, err error) {
	type start struct {
		at   time.Time
		node string
	}
	starts := make(map[uint64]start)
	for _, n := range g.b.nodes {
		f, err := os.Open(n.log.Name())
		if err != nil {
			return 0, err
		}
		defer f.Close()
		lines := bufio.NewScanner(f)
		lines.Buffer(nil, 1<<20)
		for lines.Scan() {
			var line struct {
				Time  time.Time `json:"time"`
				Msg   string    `json:"msg"`
				Epoch uint64    `json:"epoch"`
			}
			if json.Unmarshal(lines.Bytes(), &line) != nil || line.Msg != "this node runs an upstream" {
				continue
			}
			if other, ok := starts[line.Epoch]; ok {
				g.r.led.violation("epoch %d has the owners %s and %s", line.Epoch, other.node, n.name)
			}
			starts[line.Epoch] = start{line.Time, n.name}
		}
		if err := lines.Err(); err != nil {
			return 0, err
		}
	}
	for epoch, s := range starts {
		for later, t := range starts {
			if later > epoch && t.at.Before(s.at) {
				g.r.led.violation("node %s began epoch %d after node %s had begun %d", s.node, epoch, t.node, later)
			}
		}
	}
	if len(starts) < len(g.back)+1 {
		g.r.led.violation("%d epochs after %d kills", len(starts), len(g.back))
	}
	return len(starts), nil
}
