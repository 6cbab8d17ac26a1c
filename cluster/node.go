package cluster

import (
	"bytes"
	"cmp"
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"mcpwire/internal/base/coordination"
	"mcpwire/internal/base/seal"
	"mcpwire/internal/base/wait"
)

// NodeOptions configure a [Node]. Servers that share sessions need Secrets.
type NodeOptions struct {
	// Name is shown to people, in logs and in Members. Empty means the node's id.
	Name string
	// Tenant separates clusters that share a backend: nodes see only those of their tenant.
	Tenant string
	// Secrets encrypt keys in the backend. Each has at least 32 random bytes. The first one
	// encrypts, all of them decrypt. All nodes need the same. Without them [Node.Keys],
	// [Node.StateKeys] and [Node.Share] fail, unless InsecureKeys is set.
	Secrets [][]byte
	// InsecureKeys stores keys as they are if Secrets is empty. Whoever can read the backend can
	// then open the sessions and the states of all clients.
	InsecureKeys bool
	// OnAppend is called after each attempt to append an event to the backend, with its duration.
	// It must return at once. Nil means no call.
	OnAppend func(d time.Duration, err error)
	// Logger logs failures that no caller sees. Nil means slog.Default.
	Logger *slog.Logger
}

// A link gives the programs of this repository what nodes coordinate with.
type link = coordination.Link

// A Node is a process, or a part of one, in a cluster. It sends a beat to the other nodes every
// second. [Node.Leave] or [Node.Close] must be called.
type Node struct {
	link
	backend Backend
	opts    NodeOptions
	id      string
	// tenant is the first part of all keys and topics.
	tenant string
	// secrets is nil without NodeOptions.Secrets.
	secrets *seal.Ring
	members *members
	signals *signals

	// ctx ends when the node is closed.
	ctx    context.Context
	cancel context.CancelFunc
	// wg has the node's goroutines. Add needs mu.
	wg sync.WaitGroup
	// unpublished counts messages that the backend's bus has not accepted.
	unpublished atomic.Uint64

	mu     sync.Mutex
	closed bool
	leases map[*lease]struct{}
	// stops end subscriptions and handlers.
	stops []func()

	// sessionsMu is held while the first call of SessionStore sets sessions, some seconds at most.
	sessionsMu sync.Mutex
	sessions   *sessionViews
}

// ErrClosed is the error of a node that has left the cluster.
var ErrClosed = errors.New("cluster: the node is closed")

// Join makes this process a node. When it returns, all nodes that were there are among its Members.
// It copies o, which may be nil.
func Join(ctx context.Context, b Backend, o *NodeOptions) (*Node, error) {
	n := &Node{backend: b, id: strings.ToLower(rand.Text()[:10]), leases: make(map[*lease]struct{})}
	n.link = coordination.NewLink(coordinator{n})
	if o != nil {
		n.opts = *o
	}
	if len(n.opts.Name) > maxName {
		return nil, fmt.Errorf("join the cluster: NodeOptions.Name has %d bytes, limit %d", len(n.opts.Name), maxName)
	}
	n.opts.Name = cmp.Or(n.opts.Name, n.id)
	n.opts.Logger = cmp.Or(n.opts.Logger, slog.Default())
	n.tenant = digest("tenant", n.opts.Tenant)[:12]
	if len(n.opts.Secrets) > 0 {
		n.secrets = new(seal.Ring)
		if err := n.secrets.Replace(n.opts.Secrets...); err != nil {
			return nil, fmt.Errorf("join the cluster: %w", err)
		}
	}
	n.opts.Secrets = nil
	n.ctx, n.cancel = context.WithCancel(context.Background())
	err := n.join(ctx)
	if err != nil {
		n.Close()
		return nil, fmt.Errorf("join the cluster: %w", err)
	}
	return n, nil
}

func (n *Node) join(ctx context.Context) (err error) {
	if n.signals, err = newSignals(ctx, n); err != nil {
		return err
	}
	if n.members, err = newMembers(ctx, n); err != nil {
		return err
	}
	if !n.start(n.members.watch) || !n.start(n.members.beat) {
		return ErrClosed
	}
	select {
	case <-n.members.joined:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// ID returns the id of this node: 10 lower-case letters and digits, unique among all that ever
// joined.
func (n *Node) ID() string { return n.id }

// start runs fn on a goroutine of the node. It returns false if the node is closed. fn must return
// when its ctx ends.
func (n *Node) start(fn func(ctx context.Context)) bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.closed {
		return false
	}
	n.wg.Go(func() { fn(n.ctx) })
	return true
}

// onClose calls stop when the node is closed. If it is closed already, onClose does that at once
// and returns ErrClosed.
func (n *Node) onClose(stop func()) error {
	n.mu.Lock()
	if !n.closed {
		n.stops = append(n.stops, stop)
		n.mu.Unlock()
		return nil
	}
	n.mu.Unlock()
	stop()
	return ErrClosed
}

// Leave ends the node in order: it releases its leases and notifies the other nodes, which then
// need not wait until it counts as gone. It returns the first error of the backend; the node is
// closed in any case.
func (n *Node) Leave(ctx context.Context) error {
	n.mu.Lock()
	leases := slices.Collect(maps.Keys(n.leases))
	n.mu.Unlock()
	var errs []error
	for _, l := range leases {
		errs = append(errs, l.Release(ctx))
	}
	n.Close()
	errs = append(errs, n.members.records.remove(ctx, n.members.key()))
	if err := cmp.Or(errs...); err != nil {
		return fmt.Errorf("leave the cluster: %w", err)
	}
	return nil
}

// Close ends the node at once, as if its process had ended: other nodes notice after 3 seconds. It
// waits for the node's goroutines and for the requests of other nodes that it handles.
func (n *Node) Close() {
	n.mu.Lock()
	n.closed = true
	stops := n.stops
	n.stops = nil
	n.mu.Unlock()
	n.cancel()
	for _, stop := range stops {
		stop()
	}
	n.wg.Wait()
}

// Stats are numbers of a [Node].
type Stats struct {
	// Members is the number of nodes, this one included.
	Members int
	// BusLost counts messages to other nodes that were not sent, and those for this node that were
	// dropped because too many waited, if the backend counts these. Messages that other nodes send
	// while this one is disconnected are also lost, and not counted.
	BusLost uint64
	// StorageDown means that the machine of the backend that this process runs stores nothing.
	StorageDown bool
}

// Stats returns the current numbers, and the counts since the node joined.
func (n *Node) Stats() Stats {
	s := Stats{Members: n.members.count(), BusLost: n.unpublished.Load()}
	if c, ok := n.backend.(interface{ Lost() uint64 }); ok {
		s.BusLost += c.Lost()
	}
	s.StorageDown = n.checkStorage() != nil
	return s
}

// checkStorage is Check of a backend that has it.
func (n *Node) checkStorage() error {
	if c, ok := n.backend.(interface{ Check() error }); ok {
		return c.Check()
	}
	return nil
}

// Check returns an error that wraps [ErrUnavailable] if this node has not reached the backend for
// three seconds, or if the machine of the backend that this process runs stores nothing. It does
// not call the backend. It is for health.Check.
func (n *Node) Check(context.Context) error {
	if n.ctx.Err() != nil {
		return ErrClosed
	}
	if silent := n.members.silence(); silent > maxMissed*beatInterval {
		return fmt.Errorf("%w for %v: streams that begin now cannot be resumed, and tasks fail", ErrUnavailable, silent.Round(time.Second))
	}
	if err := n.checkStorage(); err != nil {
		return fmt.Errorf("%w: %w: others store for this node, and one copy of everything is missing", ErrUnavailable, err)
	}
	return nil
}

// digest returns a name that does not reveal the texts, and differs for others: 27 letters, digits,
// hyphens and underscores.
func digest(texts ...string) string {
	h := sha256.New()
	for _, t := range texts {
		fmt.Fprintf(h, "%d:%s", len(t), t)
	}
	return base64.RawURLEncoding.EncodeToString(h.Sum(nil)[:20])
}

// key returns the key of this tenant for the given texts.
func (n *Node) key(texts ...string) string { return n.tenant + "." + digest(texts...) }

// bound limits a call of the backend to two seconds.
func bound(ctx context.Context) (context.Context, context.CancelFunc) {
	return context.WithTimeoutCause(ctx, coordination.CallTimeout, errCallTimeout)
}

var errCallTimeout = fmt.Errorf("%w: no response within %v", ErrUnavailable, coordination.CallTimeout)

// callError returns the error of a call whose context is the result of bound.
func callError(ctx context.Context, err error) error {
	if err != nil && ctx.Err() != nil {
		return context.Cause(ctx)
	}
	return err
}

// format is the version of all values and messages. It is their first byte. A release reads the
// formats before and after its own. So a format may add members to JSON, but what a release needs
// must be in the format of the one before.
const format = 1

// encode returns v in the current format.
func encode(v any) ([]byte, error) {
	text, err := json.Marshal(v)
	if err != nil {
		return nil, fmt.Errorf("cluster: %w", err)
	}
	return append([]byte{format}, text...), nil
}

// decode decodes what encode returned, at this release or a neighboring one.
func decode(data []byte, v any) error {
	text, err := payload(data)
	if err != nil {
		return err
	}
	if err := json.Unmarshal(text, v); err != nil {
		return fmt.Errorf("cluster: decode a record: %w", err)
	}
	return nil
}

// payload returns what follows the version.
func payload(data []byte) ([]byte, error) {
	if len(data) == 0 {
		return nil, errors.New("cluster: empty record")
	}
	if v := int(data[0]); v < format-1 || v > format+1 {
		return nil, fmt.Errorf("cluster: a record has format %d, this release reads %d to %d: replace nodes release by release", v, format-1, format+1)
	}
	return data[1:], nil
}

// records is a Records: a bucket whose calls are bounded.
type records struct {
	name string
	Records
}

// openTimeout limits the time to open a bucket or a log, which the backend may have to create.
const openTimeout = 30 * time.Second

var errOpenTimeout = fmt.Errorf("%w: no response within %v", ErrUnavailable, openTimeout)

func (n *Node) records(ctx context.Context, name string, o RecordsOptions) (*records, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, openTimeout, errOpenTimeout)
	defer cancel()
	r, err := n.backend.Records(ctx, name, o)
	if err != nil {
		return nil, fmt.Errorf("open %s: %w", name, callError(ctx, err))
	}
	return &records{name, r}, nil
}

// Get implements [Records]. That a record is not found is by the word of a majority: clients drop
// tasks, sessions and tokens that do not exist. A record may be old. Who writes it learns that by
// its revision, and who only reads it sees what was true a moment ago, as after a slow response.
func (r *records) Get(ctx context.Context, key string) (Record, error) {
	ctx, cancel := bound(ctx)
	defer cancel()
	for {
		rec, err := r.peek(ctx, key)
		if !errors.Is(err, ErrNotFound) {
			return rec, err
		}
		if absent := r.absent(ctx, key); !errors.Is(absent, ErrConflict) {
			return rec, cmp.Or(absent, err)
		}
		if !wait.Sleep(ctx, retryDelay) {
			return rec, r.wrap("get from", callError(ctx, ErrUnavailable))
		}
	}
}

// peek is Get for callers that write the record, or create it, if it has not changed. ErrNotFound
// may be old.
func (r *records) peek(ctx context.Context, key string) (Record, error) {
	ctx, cancel := bound(ctx)
	defer cancel()
	rec, err := r.Records.Get(ctx, key)
	return rec, r.wrap("get from", callError(ctx, err))
}

// absent is Absent.
func (r *records) absent(ctx context.Context, key string) error {
	return r.wrap("get from", callError(ctx, r.Records.Absent(ctx, key)))
}

func (r *records) Put(ctx context.Context, key string, value []byte, rev uint64) (uint64, error) {
	ctx, cancel := bound(ctx)
	defer cancel()
	rev, err := r.Records.Put(ctx, key, value, rev)
	return rev, r.wrap("put into", callError(ctx, err))
}

func (r *records) Delete(ctx context.Context, key string, rev uint64) error {
	ctx, cancel := bound(ctx)
	defer cancel()
	return r.wrap("delete from", callError(ctx, r.Records.Delete(ctx, key, rev)))
}

func (r *records) wrap(operation string, err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("%s %s: %w", operation, r.name, err)
}

// retryDelay is the time between attempts after a conflict or a failure.
const retryDelay = 20 * time.Millisecond

// update changes a record by compare-and-set. It retries until no other write interferes, within
// two seconds. change gets the value, or nil if the record does not exist, and returns the new
// one. It may be called more than once. A write that fails, or conflicts, may have been carried
// out: update finds out by its value.
func (r *records) update(ctx context.Context, key string, change func(old []byte) ([]byte, error)) (value []byte, rev uint64, err error) {
	ctx, cancel := bound(ctx)
	defer cancel()
	var unsure [][]byte // values whose Put failed and may have been carried out
	for atOnce := true; ; {
		old, err := r.peek(ctx, key)
		switch {
		case errors.Is(err, ErrNotFound):
			old = Record{}
		case err != nil:
			return nil, 0, err
		case slices.ContainsFunc(unsure, func(value []byte) bool { return bytes.Equal(old.Value, value) }):
			return old.Value, old.Rev, nil
		}
		value, err := change(old.Value)
		if err != nil && old.Rev == 0 {
			absent := r.absent(ctx, key)
			if errors.Is(absent, ErrConflict) && wait.Sleep(ctx, retryDelay) {
				continue
			}
			err = cmp.Or(absent, err)
		}
		if err != nil {
			return nil, 0, err
		}
		rev, err := r.Put(ctx, key, value, old.Rev)
		if err == nil {
			return value, rev, nil
		}
		if !errors.Is(err, ErrUnavailable) && !errors.Is(err, ErrConflict) {
			return nil, 0, err
		}
		unsure = append(unsure, value)
		if atOnce && errors.Is(err, ErrUnavailable) {
			atOnce = false
			continue // later, other writes may hide what was carried out
		}
		atOnce = true
		if !wait.Sleep(ctx, retryDelay) {
			return nil, 0, err
		}
	}
}

// create stores a record that only this caller writes.
func (r *records) create(ctx context.Context, key string, value []byte) error {
	_, err := r.Put(ctx, key, value, 0)
	if errors.Is(err, ErrConflict) || errors.Is(err, ErrUnavailable) { // it may be there
		_, _, err = r.update(ctx, key, func([]byte) ([]byte, error) { return value, nil })
	}
	return err
}

// remove deletes a record, whatever its revision is.
func (r *records) remove(ctx context.Context, key string) error {
	ctx, cancel := bound(ctx)
	defer cancel()
	for {
		old, err := r.Get(ctx, key)
		if err == nil {
			err = r.Delete(ctx, key, old.Rev)
		}
		switch {
		case err == nil || errors.Is(err, ErrNotFound):
			return nil
		case !errors.Is(err, ErrConflict) && !errors.Is(err, ErrUnavailable):
			return err
		}
		if !wait.Sleep(ctx, retryDelay) {
			return err
		}
	}
}

// list returns the values of the records whose keys begin with the parts of prefix, and fails if
// there are more than limit.
func (r *records) list(ctx context.Context, prefix string, limit int) (values [][]byte, err error) {
	ctx, cancel := bound(ctx)
	defer cancel()
	for c, err := range r.Watch(ctx, prefix) {
		switch {
		case err != nil:
			return nil, r.wrap("list", callError(ctx, err))
		case c.Kind == ChangeSynced:
			return values, nil
		case c.Kind == ChangePut:
			if len(values) >= limit {
				return nil, r.wrap("list", fmt.Errorf("more than %d records", limit))
			}
			values = append(values, c.Value)
		}
	}
	return nil, r.wrap("list", ErrUnavailable)
}

// follow watches the records of the tenant, again and again until ctx ends. It calls begin before
// each watch, see with each change, and end after it. what names the records in the log.
func (n *Node) follow(ctx context.Context, r *records, what string, begin func(), see func(Change), end func()) {
	for failures := 0; ctx.Err() == nil; {
		begin()
		var err error
		for c, failed := range r.Watch(ctx, n.tenant) {
			if err = failed; err != nil {
				break
			}
			failures = 0
			see(c)
		}
		end()
		if failures++; failures > 1 && ctx.Err() == nil {
			n.opts.Logger.Warn("changes of "+what+" are not seen", "node", n.id, "error", err)
		}
		if !wait.Sleep(ctx, wait.Backoff(minBackoff, maxBackoff, failures, 0)) {
			return
		}
	}
}

// await waits until ch is closed. The error says that ctx ended, or the node was closed, before.
func (n *Node) await(ctx context.Context, ch <-chan struct{}) error {
	select {
	case <-ch:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	case <-n.ctx.Done():
		return ErrClosed
	}
}

// seal encrypts a value for the backend, if the node has secrets. purpose is a constant; key is
// that of the record.
func (n *Node) seal(purpose, key string, plain []byte) ([]byte, error) {
	if n.secrets == nil {
		return append([]byte{format, 0}, plain...), nil
	}
	text, _, err := n.secrets.Seal([]byte{format, 1}, purpose, plain, []byte(key))
	return text, err
}

// unseal decrypts what seal returned.
func (n *Node) unseal(purpose, key string, data []byte) ([]byte, error) {
	data, err := payload(data)
	switch {
	case err != nil:
		return nil, err
	case len(data) > 0 && data[0] == 0 && n.secrets == nil:
		return data[1:], nil
	case len(data) == 0 || data[0] != 1 || n.secrets == nil:
		return nil, errors.New("cluster: a record is encrypted at one node and not at another: give all the same NodeOptions.Secrets")
	}
	plain, _, err := n.secrets.Open(string(data[1:]), 2*coordination.MaxValue, purpose, []byte(key))
	if err != nil {
		return nil, errors.New("cluster: a record was encrypted with another secret: give all nodes the same NodeOptions.Secrets")
	}
	return plain, nil
}
