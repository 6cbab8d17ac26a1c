package cluster

import (
	"context"
	"errors"
	"iter"
	"time"

	"mcpwire/internal/base/coordination"
)

var (
	// ErrUnavailable means that the backend did not respond in time, has no quorum, or is full. The
	// call may succeed later. A write may have been carried out.
	ErrUnavailable = errors.New("backend unavailable")
	// ErrConflict means that a record has another revision than the caller expected.
	ErrConflict = errors.New("record has changed")
	// ErrNotFound means that a record does not exist.
	ErrNotFound = errors.New("record not found")
	// ErrGone means that a log no longer has the entries after a sequence number, or that a watch
	// has missed changes.
	ErrGone = errors.New("entries are gone")
	// ErrTooLarge means that a value has more than 512 KiB.
	ErrTooLarge = coordination.ErrTooLarge
	// ErrNoNode means that no node with that id handles the topic now.
	ErrNoNode = errors.New("no such node")
)

// A Backend stores and delivers what the nodes of a cluster share. Its methods, and those of its
// parts, may be called by multiple goroutines at once. They return when their context ends, with an
// error that wraps the context's error or [ErrUnavailable]. Package clustertest tests a Backend,
// and has one in memory.
//
// A backend of which a machine may run in this process can have a method Check() error. It returns
// an error at once if that machine does not store. A backend whose bus drops messages can have a
// method Lost() uint64, which returns their number.
//
// The names of buckets and logs have up to 64 lower-case letters, digits and hyphens. Keys, topics
// and the ids of nodes have 1 to 200 ASCII letters, digits, hyphens and underscores, in parts that
// dots separate. A backend rejects others, and values of more than 512 KiB with [ErrTooLarge].
//
// A [Node] waits two seconds for each call.
type Backend interface {
	// Records opens a bucket of records. It creates the bucket if it does not exist, and changes
	// its TTL and MaxBytes if they differ.
	Records(ctx context.Context, name string, o RecordsOptions) (Records, error)
	// Log opens a log. It creates the log if it does not exist, and changes its limits if they
	// differ.
	Log(ctx context.Context, name string, o LogOptions) (Log, error)
	// Bus returns the bus.
	Bus() Bus
}

// RecordsOptions are the properties of a bucket.
type RecordsOptions struct {
	// TTL is how long a record is kept after it was last written. It is at least a second. Zero
	// keeps records until they are deleted.
	TTL time.Duration
	// MaxBytes limits the bytes of all records. Put fails with ErrUnavailable when the bucket is
	// full. Zero means 64 MiB.
	MaxBytes int64
	// Durable records survive the loss of power of all machines at once. Others survive the loss of
	// a minority of the backend's machines.
	Durable bool
}

// Records is a bucket of records: values with keys.
type Records interface {
	// Get returns a record, or ErrNotFound. Either may be older than the last Put, since a machine
	// that is cut off from the others may answer. The caller owns the value.
	Get(ctx context.Context, key string) (Record, error)
	// Absent returns nil if the record did not exist at a moment during the call, by the word of a
	// majority of the backend's machines, and ErrConflict if it existed. It costs a write.
	Absent(ctx context.Context, key string) error
	// Put stores a record and returns its new revision. It fails with ErrConflict unless rev is the
	// record's revision, or 0 if the record does not exist. Revisions only grow in a bucket, also
	// when records are deleted or expire. A backend that may have two leaders for a moment can fail
	// with ErrConflict and carry the write out all the same. Put does not keep value.
	Put(ctx context.Context, key string, value []byte, rev uint64) (uint64, error)
	// Delete removes a record. It fails with ErrConflict unless rev is the record's revision.
	Delete(ctx context.Context, key string, rev uint64) error
	// Watch yields a Change for each record whose key begins with prefix and a dot, then one
	// whose Kind is ChangeSynced, and then each further change. It may omit a change if the record
	// has changed again. It does not yield that a record expired. It ends with an error: that of
	// ctx, ErrGone if changes were missed, or ErrUnavailable. An empty prefix means all records.
	Watch(ctx context.Context, prefix string) iter.Seq2[Change, error]
}

// A Record is a value with its revision.
type Record struct {
	Value []byte
	Rev   uint64
}

// A Change is what [Records].Watch yields.
type Change struct {
	Kind ChangeKind
	Key  string
	// Record has no Value if the record was deleted.
	Record
}

// A ChangeKind is the kind of a [Change].
type ChangeKind int

// The kinds of changes.
const (
	// ChangePut means that the record was written, or existed when the watch began.
	ChangePut ChangeKind = iota + 1
	// ChangeDelete means that the record was deleted.
	ChangeDelete
	// ChangeSynced follows the records that existed when the watch began. It has no Key.
	ChangeSynced
)

// LogOptions are the properties of a log.
type LogOptions struct {
	// MaxEntries limits the entries with one key. The oldest ones are evicted. Zero means 1000.
	MaxEntries int
	// MaxAge limits the age of entries. It is at least a second. Zero means 1 h.
	MaxAge time.Duration
	// MaxBytes limits the bytes of all entries. The oldest ones are evicted. Zero means 64 MiB.
	MaxBytes int64
	// Durable is as in RecordsOptions.
	Durable bool
}

// A LogKey identifies a sequence of entries of a log.
type LogKey struct {
	// Group is what Drop removes at once.
	Group string
	// Name is unique in the group. It has no dots.
	Name string
}

// A Log has sequences of entries. Entries leave a sequence only at its front, unless their group is
// dropped: if it has an entry, it also has all later ones.
type Log interface {
	// Append adds an entry and returns its sequence number, which is greater than those of earlier
	// entries with the same key. If an entry with the same key and id was added in the last two
	// minutes, it adds nothing and returns the number of that one. An empty id is always new.
	// Append does not keep data.
	Append(ctx context.Context, key LogKey, id string, data []byte) (seq uint64, err error)
	// Read returns up to limit entries with sequence numbers greater than after, in order, and at
	// least one if there is one. It fails with ErrGone if the log does not have the entry after,
	// because some of those behind it may be missing too. If after is 0, it begins with the first
	// entry that is there.
	Read(ctx context.Context, key LogKey, after uint64, limit int) ([]Entry, error)
	// Follow yields the entries that Read returns, and then each new one. It never skips one. It
	// ends with an error: that of ctx, ErrGone, or ErrUnavailable.
	Follow(ctx context.Context, key LogKey, after uint64) iter.Seq2[Entry, error]
	// Drop removes all entries of a group.
	Drop(ctx context.Context, group string) error
}

// An Entry is an entry of a [Log].
type Entry struct {
	Seq  uint64
	Data []byte
}

// A Bus sends messages to nodes, each at most once.
type Bus interface {
	// Publish sends a message to the subscribers of a topic.
	Publish(ctx context.Context, topic string, data []byte) error
	// Subscribe calls deliver for each message of a topic, one at a time, until stop is called.
	// Messages of other nodes reach the subscription a moment after it returns. At most 4096
	// messages wait; further ones are lost. stop waits for deliver, which must not call it. deliver
	// owns data.
	Subscribe(ctx context.Context, topic string, deliver func(data []byte)) (stop func(), err error)
	// Request sends a message to the node that handles the topic and returns its reply. It fails at
	// once with ErrNoNode if none does.
	Request(ctx context.Context, node, topic string, data []byte) (reply []byte, err error)
	// Handle calls handle for each request for the node and topic, on separate goroutines, until
	// stop is called. At most 256 run at once; further requests fail with ErrUnavailable. stop
	// cancels the contexts and waits. Requests of other nodes reach it a moment after it returns.
	Handle(ctx context.Context, node, topic string, handle func(ctx context.Context, data []byte) []byte) (stop func(), err error)
}
