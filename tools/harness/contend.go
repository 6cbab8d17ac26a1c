//go:build linux

package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"mcpwire/cluster"
	"mcpwire/cluster/natscluster"
	"mcpwire/internal/base/coordination"
	"mcpwire/internal/test/history"
)

// contenders are nodes in this process, each a client of the engine of one core node. They write
// one record and want one lease.
type contenders struct {
	dir      string
	led      *ledger
	backends []*natscluster.Backend
	nodes    []*cluster.Node
	history  history.History
	cancel   context.CancelFunc
	wg       sync.WaitGroup

	mu sync.Mutex
	// holders has the contender of each epoch.
	holders map[uint64]int
	// holding is the number of contenders that believe to have the lease now.
	holding, overlaps int
}

// startContenders connects to the nodes and starts.
func startContenders(ctx context.Context, b *testbed, led *ledger, seed uint64) (c *contenders, err error) {
	c = &contenders{dir: b.dir, led: led, holders: make(map[uint64]int)}
	defer func() {
		if err != nil {
			c.close()
		}
	}()
	quiet := slog.New(slog.DiscardHandler)
	var records []cluster.Records
	for _, n := range b.nodes {
		backend, err := natscluster.Open(ctx, natscluster.Options{URL: "nats://" + n.client, Connect: []nats.Option{nats.Token(engineToken)}, Logger: quiet})
		if err != nil {
			return nil, fmt.Errorf("contender at %s: %w", n.name, err)
		}
		c.backends = append(c.backends, backend)
		node, err := cluster.Join(ctx, backend, &cluster.NodeOptions{Tenant: "harness", Logger: quiet})
		if err != nil {
			return nil, fmt.Errorf("contender at %s: %w", n.name, err)
		}
		c.nodes = append(c.nodes, node)
		r, err := backend.Records(ctx, "harness", cluster.RecordsOptions{Durable: true})
		if err != nil {
			return nil, err
		}
		records = append(records, r)
	}
	ctx, c.cancel = context.WithCancel(ctx)
	for i := range c.nodes {
		c.wg.Go(func() { c.contend(ctx, i, rand.New(rand.NewPCG(seed, uint64(i)))) })
		c.wg.Go(func() { c.history.Write(ctx, i, records[i], "record", 2000) })
	}
	return c, nil
}

// contend takes the lease again and again.
func (c *contenders) contend(ctx context.Context, i int, rnd *rand.Rand) {
	for ctx.Err() == nil {
		l, err := coordination.Of(c.nodes[i]).Acquire(ctx, "lease")
		if err != nil {
			select {
			case <-time.After(pollInterval):
			case <-ctx.Done():
			}
			continue
		}
		c.mu.Lock()
		if other, ok := c.holders[l.Epoch()]; ok {
			c.led.violation("epoch %d of a lease has the holders %d and %d", l.Epoch(), other, i)
		}
		c.holders[l.Epoch()] = i
		if c.holding++; c.holding > 1 {
			c.overlaps++
		}
		c.mu.Unlock()
		select {
		case <-l.Lost():
		case <-time.After(time.Duration(100+rnd.IntN(900)) * time.Millisecond):
		case <-ctx.Done():
		}
		c.mu.Lock()
		c.holding--
		c.mu.Unlock()
		// A lease that cannot be released is free when its holder has missed its beats.
		release, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Second)
		_ = l.Release(release)
		cancel()
	}
}

// stop ends the contenders and checks what they did.
func (c *contenders) stop() string {
	c.cancel()
	c.wg.Wait()
	writes, succeeded, err := c.history.Check()
	if err != nil {
		name := filepath.Join(c.dir, "history.txt")
		c.led.violation("%v: %v", err, cmp.Or(os.WriteFile(name, []byte(c.history.String()), 0o600), errors.New("see "+name)))
	}
	c.close()
	return fmt.Sprintf("%d writes of a record, %d succeeded, linearizable; a lease had %d holders, %d at the time of another", writes, succeeded, len(c.holders), c.overlaps)
}

func (c *contenders) close() {
	for _, n := range c.nodes {
		n.Close()
	}
	for _, b := range c.backends {
		b.Close()
	}
}

// consumers returns the number of consumers of the engine.
func consumers(ctx context.Context, b *testbed) (int, error) {
	nc, err := nats.Connect("nats://"+b.nodes[0].client, nats.Token(engineToken), nats.Timeout(2*time.Second))
	if err != nil {
		return 0, err
	}
	defer nc.Close()
	js, err := jetstream.New(nc)
	if err != nil {
		return 0, err
	}
	info, err := js.AccountInfo(ctx)
	if err != nil {
		return 0, err
	}
	if info.Streams == 0 {
		return 0, errors.New("the engine has no streams")
	}
	return info.Consumers, nil
}
