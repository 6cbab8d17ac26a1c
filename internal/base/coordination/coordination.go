// Package coordination lets the programs of this repository, and no others, use what the nodes of a
// cluster coordinate with, messages and leases, and has the rules that backends check.
package coordination

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"
)

// A Node is a *cluster.Node, see [Of].
type Node interface {
	// ID returns the id of the node.
	ID() string
	// HasMember reports whether the node with that id is one of the members.
	HasMember(id string) bool
	// Request sends a message to another node, or to this one, and returns the reply of the
	// function that the node has given Handle. It fails at once with an error that wraps
	// cluster.ErrNoNode if there is none. If that function returned an error, the error has its
	// text and wraps none of package cluster.
	Request(ctx context.Context, node, topic string, data []byte) ([]byte, error)
	// Handle calls handle for each Request for this node and topic until the node is closed. Its
	// ctx ends after CallTimeout, when the other node no longer waits.
	Handle(ctx context.Context, topic string, handle func(ctx context.Context, data []byte) ([]byte, error)) error
	// Acquire waits until this node has the lease with that name, or ctx ends.
	Acquire(ctx context.Context, name string) (Lease, error)
	// TryAcquire returns the lease with that name, or an error that wraps [ErrLeaseHeld].
	TryAcquire(ctx context.Context, name string) (Lease, error)
	// LeaseHolder returns the id of the node that holds the lease with that name, or held it last
	// and has not released it. The error wraps cluster.ErrNotFound if there is none.
	LeaseHolder(ctx context.Context, name string) (node string, err error)
}

// ErrLeaseHeld is the error of [Node].TryAcquire if another holder has the lease.
var ErrLeaseHeld = errors.New("lease is held")

// A Lease is the right to do something alone in the cluster, for example to run a process.
//
// The holder writes a record every second. If that fails for 2.5 seconds, the lease is lost.
// Another node takes it when it has seen no beat for about four seconds. So a node that runs at
// normal speed stops before another one begins. A process that was suspended may wake up later and
// write once more before it notices. Epoch protects against that: store it with whatever the lease
// protects, and reject a write whose epoch is less than the stored one.
type Lease interface {
	// Epoch returns a number that is greater than those of all earlier holders of the lease, and
	// also of all that had other leases before.
	Epoch() uint64
	// Lost returns a channel that is closed when the lease is lost or released.
	Lost() <-chan struct{}
	// Held reports whether this node still has the lease.
	Held() bool
	// Release gives the lease back, so that another node can have it at once. It does nothing if
	// the lease is lost.
	Release(ctx context.Context) error
}

// A Linked node is a *cluster.Node. No other type has the method.
type Linked interface{ coordination() Node }

// Of returns the Node of a *cluster.Node.
func Of(n Linked) Node { return n.coordination() }

// A Link makes the type that embeds it [Linked].
type Link struct{ to Node }

// NewLink returns a Link to n.
func NewLink(n Node) Link { return Link{n} }

func (l *Link) coordination() Node { return l.to }

const (
	// MaxValue limits the bytes of a record, of an entry of a log, and of a message.
	MaxValue = 512 << 10
	// CallTimeout limits each call of a backend, in addition to the caller's context.
	CallTimeout = 2 * time.Second
)

// ErrTooLarge is cluster.ErrTooLarge.
var ErrTooLarge = errors.New("value too large")

// maxKey limits the bytes of a key.
const maxKey = 200

const keyBytes = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_"

// CheckKey returns an error unless each text is a key, a topic or the id of a node, see
// cluster.Backend.
func CheckKey(keys ...string) error {
	for _, k := range keys {
		bad := len(k) > maxKey
		for part := range strings.SplitSeq(k, ".") {
			bad = bad || part == "" || strings.Trim(part, keyBytes) != ""
		}
		if bad {
			return fmt.Errorf("cluster: invalid key %.80q", k)
		}
	}
	return nil
}

// CheckName returns an error unless name is valid for a bucket or a log, see cluster.Backend.
func CheckName(name string) error {
	if name == "" || len(name) > 64 || strings.Trim(name, "abcdefghijklmnopqrstuvwxyz0123456789-") != "" {
		return fmt.Errorf("cluster: invalid name %.80q: use up to 64 lower-case letters, digits and hyphens", name)
	}
	return nil
}

// CheckValue returns an error that wraps [ErrTooLarge] if data is too large.
func CheckValue(data []byte) error {
	if len(data) > MaxValue {
		return fmt.Errorf("%w: %d bytes, limit %d", ErrTooLarge, len(data), MaxValue)
	}
	return nil
}
