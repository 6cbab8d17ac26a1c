package cluster

import (
	"bytes"
	"context"
	"crypto/rand"
	"fmt"
	"sync"
	"time"

	"mcpwire/auth"
)

const (
	// maxReplayBytes limits the records of one replay cache: about 400,000 keys.
	maxReplayBytes = 128 << 20
	// maxReplayKeys limits the keys that a node counts by owner, and the keys of one owner at one
	// node to a sixteenth.
	maxReplayKeys      = 1 << 18
	maxReplayKeysOwner = maxReplayKeys / 16
)

// A replayCache is an auth.ReplayCache.
type replayCache struct {
	n       *Node
	records *records
	ttl     time.Duration

	mu sync.Mutex
	// owners counts the keys in used.
	owners map[string]int
	used   []usedKey
}

// A usedKey is a key that this node has recorded for an owner.
type usedKey struct {
	owner string
	at    time.Time
}

// ReplayCache returns a cache that all nodes share. Its Once decides which of several uses of a key
// is the first one in the cluster. It remembers keys for maxTTL, at least a second, and fails for a
// longer time; auth needs 130 seconds, and server.InputOptions its StateTTL. All nodes must use the
// same maxTTL for one name, which consists of lower-case letters, digits and hyphens.
func (n *Node) ReplayCache(ctx context.Context, name string, maxTTL time.Duration) (auth.ReplayCache, error) {
	r, err := n.records(ctx, "once-"+name, RecordsOptions{TTL: maxTTL, MaxBytes: maxReplayBytes})
	if err != nil {
		return nil, err
	}
	return &replayCache{n: n, records: r, ttl: maxTTL, owners: make(map[string]int)}, nil
}

// Once implements [auth.ReplayCache]. It limits the keys that an owner uses at this node, with
// [auth.ErrReplayQuota].
func (c *replayCache) Once(ctx context.Context, owner, key string, ttl time.Duration) (bool, error) {
	if ttl > c.ttl {
		return false, fmt.Errorf("cluster: the replay cache remembers keys for %v, not %v", c.ttl, ttl)
	}
	if owner != "" {
		if err := c.count(digest(owner)); err != nil {
			return false, err
		}
	}
	token := append([]byte{format}, rand.Text()...)
	value, _, err := c.records.update(ctx, c.n.key("once", digest(owner, key)), func(old []byte) ([]byte, error) {
		if old != nil {
			return nil, errUsed
		}
		return token, nil
	})
	if err == errUsed {
		return false, nil
	}
	return bytes.Equal(value, token), err
}

// errUsed ends the update of a key that was used before.
var errUsed = fmt.Errorf("cluster: %w", ErrConflict)

// count counts a key of an owner.
func (c *replayCache) count(owner string) error {
	now := time.Now()
	c.mu.Lock()
	defer c.mu.Unlock()
	for len(c.used) > 0 && (now.Sub(c.used[0].at) >= c.ttl || len(c.used) >= maxReplayKeys) {
		if c.owners[c.used[0].owner]--; c.owners[c.used[0].owner] == 0 {
			delete(c.owners, c.used[0].owner)
		}
		c.used = c.used[1:]
	}
	if c.owners[owner] >= maxReplayKeysOwner {
		return auth.ErrReplayQuota
	}
	c.owners[owner]++
	c.used = append(c.used, usedKey{owner, now})
	return nil
}
