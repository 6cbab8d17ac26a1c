package cluster

import (
	"bytes"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"sync"
	"time"

	"mcpwire/auth"
)

const (
	// maxReplayBytes limits the records of one replay cache: about 400,000 keys.
	maxReplayBytes = 128 << 20
	// maxReplayKeys limits the keys that a node counts by owner. The keys of one owner at one node
	// may equal the freeReplayShare-th part of what is left, so that many owners leave room for
	// others.
	maxReplayKeys   = 1 << 18
	freeReplayShare = 15
)

// A replayCache is an auth.ReplayCache.
type replayCache struct {
	n        *Node
	records  *records
	cleanups *cleanups
	ttl      time.Duration

	mu sync.Mutex
	// owners counts the keys in used.
	owners map[string]int
	used   []usedKey
	// abandoned has the tokens of uses that failed and may have been recorded.
	abandoned map[string]struct{}
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
//
// If Once fails, the key has not been used, and its caller may try again: at this node at once, at
// another one as soon as this node reaches the backend. A key remains used if the node stops before
// that.
func (n *Node) ReplayCache(ctx context.Context, name string, maxTTL time.Duration) (auth.ReplayCache, error) {
	r, err := n.records(ctx, "once-"+name, RecordsOptions{TTL: maxTTL, MaxBytes: maxReplayBytes})
	if err != nil {
		return nil, err
	}
	cleanups, err := newCleanups(n)
	if err != nil {
		return nil, err
	}
	return &replayCache{n: n, records: r, cleanups: cleanups, ttl: maxTTL, owners: make(map[string]int), abandoned: make(map[string]struct{})}, nil
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
	key, token := c.n.key("once", digest(owner, key)), append([]byte{format}, rand.Text()...)
	wrote := false
	value, _, err := c.records.update(ctx, key, func(old []byte) ([]byte, error) {
		if old != nil && !c.isFree(old) {
			return nil, errUsed
		}
		wrote = true
		return token, nil
	})
	switch {
	case err == errUsed:
		return false, nil
	case err != nil && wrote:
		c.abandon(key, token)
	}
	return bytes.Equal(value, token), err
}

// errUsed ends the update of a key that was used before.
var errUsed = fmt.Errorf("cluster: %w", ErrConflict)

// freeKey is the record of a key that an abandoned use may have had.
var freeKey = []byte{format}

// isFree reports whether a record means that nobody has used its key.
func (c *replayCache) isFree(value []byte) bool {
	if bytes.Equal(value, freeKey) {
		return true
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	_, abandoned := c.abandoned[string(value)]
	return abandoned
}

// abandon frees the key of a use that failed although it may have been recorded, or may still be.
// What the caller wanted to do once has not been done.
func (c *replayCache) abandon(key string, token []byte) {
	c.mu.Lock()
	c.abandoned[string(token)] = struct{}{}
	c.mu.Unlock()
	done := func() {
		c.mu.Lock()
		defer c.mu.Unlock()
		delete(c.abandoned, string(token))
	}
	free := func(ctx context.Context) error { return c.free(ctx, key) }
	if !c.cleanups.add(cleanup{free, time.Now().Add(c.ttl), done}) {
		done() // the key remains used
	}
}

// free frees a key, unless a use has it that has not failed. It writes the record even if the key
// is free: then a write of an abandoned use that is carried out later conflicts.
func (c *replayCache) free(ctx context.Context, key string) error {
	rec, err := c.records.peek(ctx, key)
	switch {
	case errors.Is(err, ErrNotFound):
		rec = Record{}
	case err != nil:
		return err
	case !c.isFree(rec.Value):
		return nil
	}
	_, err = c.records.Put(ctx, key, freeKey, rec.Rev)
	return err
}

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
	if c.owners[owner] >= max((maxReplayKeys-len(c.used))/freeReplayShare, 1) {
		return auth.ErrReplayQuota
	}
	c.owners[owner]++
	c.used = append(c.used, usedKey{owner, now})
	return nil
}
