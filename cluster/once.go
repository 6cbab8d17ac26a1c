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

// maxOnceBytes limits the records of one Once: about 400,000 keys.
const maxOnceBytes = 128 << 20

// Once decides which of several uses of a key is the first one in the cluster.
type Once struct {
	n       *Node
	records *records
	name    string
	ttl     time.Duration
}

// Once returns a Once that remembers each key for ttl, at least a second. All nodes must use the
// same ttl for one name, which consists of lower-case letters, digits and hyphens.
func (n *Node) Once(ctx context.Context, name string, ttl time.Duration) (*Once, error) {
	r, err := n.records(ctx, "once-"+name, RecordsOptions{TTL: ttl, MaxBytes: maxOnceBytes})
	if err != nil {
		return nil, err
	}
	return &Once{n, r, name, ttl}, nil
}

// First reports whether this is the first use of key. Of several calls in the cluster, within the
// ttl, exactly one returns true. After an error the key may count as used.
func (o *Once) First(ctx context.Context, key string) (bool, error) {
	token := append([]byte{format}, rand.Text()...)
	value, _, err := o.records.update(ctx, o.n.key("once", key), func(old []byte) ([]byte, error) {
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

var errUsed = fmt.Errorf("cluster: %w", ErrConflict)

const (
	// maxReplayKeys limits the keys that a node counts by owner, and the keys of one owner at one
	// node to a sixteenth.
	maxReplayKeys      = 1 << 18
	maxReplayKeysOwner = maxReplayKeys / 16
)

// replayCache is an auth.ReplayCache.
type replayCache struct {
	once *Once

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

// ReplayCache returns a cache that all nodes share. It remembers keys for maxTTL and fails for a
// longer time; auth needs 130 seconds, and server.InputOptions its StateTTL. The name is as in
// [Node.Once].
func (n *Node) ReplayCache(ctx context.Context, name string, maxTTL time.Duration) (auth.ReplayCache, error) {
	o, err := n.Once(ctx, name, maxTTL)
	if err != nil {
		return nil, err
	}
	return &replayCache{once: o, owners: make(map[string]int)}, nil
}

// Once implements [auth.ReplayCache]. It limits the keys that an owner uses at this node, with
// [auth.ErrReplayQuota].
func (c *replayCache) Once(ctx context.Context, owner, key string, ttl time.Duration) (bool, error) {
	if ttl > c.once.ttl {
		return false, fmt.Errorf("cluster: the replay cache remembers keys for %v, not %v", c.once.ttl, ttl)
	}
	if owner != "" {
		if err := c.count(digest(owner)); err != nil {
			return false, err
		}
	}
	return c.once.First(ctx, digest(owner, key))
}

// count counts a key of an owner.
func (c *replayCache) count(owner string) error {
	now := time.Now()
	c.mu.Lock()
	defer c.mu.Unlock()
	for len(c.used) > 0 && (now.Sub(c.used[0].at) >= c.once.ttl || len(c.used) >= maxReplayKeys) {
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
