package natscluster_test

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"mcpwire/cluster"
	"mcpwire/cluster/natscluster"
	"mcpwire/internal/base/coordination"
	"mcpwire/internal/test/history"
)

// A process is a core node in a separate process.
type process struct {
	cmd *exec.Cmd
	// ready is closed when the node is open.
	ready chan struct{}
}

func startProcess(t *testing.T, e *natscluster.Embed) *process {
	t.Helper()
	text, err := json.Marshal(nodeOptions{e.Name, e.Dir, e.Listen, e.Routes})
	if err != nil {
		t.Fatal(err)
	}
	p := &process{exec.Command(os.Args[0]), make(chan struct{})}
	p.cmd.Env = append(os.Environ(), nodeVariable+"="+string(text))
	p.cmd.Stderr = os.Stderr
	stdin, err := p.cmd.StdinPipe() // the end of this process ends the input and so the node
	if err != nil {
		t.Fatal(err)
	}
	stdout, err := p.cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := p.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	var wg sync.WaitGroup
	wg.Go(func() {
		if bufio.NewScanner(stdout).Scan() {
			close(p.ready)
		}
	})
	t.Cleanup(func() {
		stdin.Close()
		p.kill()
		wg.Wait()
	})
	return p
}

// kill kills the process.
func (p *process) kill() {
	p.cmd.Process.Kill()
	p.cmd.Wait()
}

// A writer appends increasing numbers to one sequence.
type writer struct {
	key cluster.LogKey
	// acked has the sequence number of each appended number.
	acked map[int]uint64
	// gap is the longest time between two appends.
	gap time.Duration
	// last is the time of the last one.
	last atomic.Pointer[time.Time]
}

func (w *writer) run(ctx context.Context, l cluster.Log) error {
	last := time.Now()
	for i := 0; ctx.Err() == nil; i++ {
		call, cancel := context.WithTimeout(ctx, 500*time.Millisecond)
		seq, err := l.Append(call, w.key, fmt.Sprint(i), fmt.Append(nil, i))
		cancel()
		switch {
		case ctx.Err() != nil:
			return nil
		case err == nil:
			w.acked[i] = seq
			now := time.Now()
			w.gap, last = max(w.gap, now.Sub(last)), now
			w.last.Store(&now)
			<-time.After(10 * time.Millisecond) // limits the load of several writers
		case !errors.Is(err, cluster.ErrUnavailable) && !errors.Is(err, context.DeadlineExceeded):
			return err
		default:
			i-- // again, with the same id
		}
	}
	return nil
}

// check reads the sequence and compares it with the acknowledged numbers.
func (w *writer) check(t *testing.T, l cluster.Log) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	found := map[int]uint64{}
	for after, next := uint64(0), 0; ; {
		entries, err := l.Read(ctx, w.key, after, 500)
		if err != nil {
			t.Errorf("read %v after %d: %v", w.key, after, err)
			return
		}
		if len(entries) == 0 {
			break
		}
		for _, e := range entries {
			var n int
			fmt.Sscan(string(e.Data), &n)
			if n != next {
				t.Errorf("%v: got %d, want %d", w.key, n, next)
				return
			}
			after, found[n] = e.Seq, e.Seq
			next++
		}
	}
	for n, seq := range w.acked {
		if found[n] != seq {
			t.Errorf("%v: entry %d: got sequence number %d, want %d as acknowledged", w.key, n, found[n], seq)
		}
	}
}

// openWithProcess starts core node 0 in a separate process, and opens nodes 1 and 2. The caller
// closes node 1. again restarts the process.
func openWithProcess(t *testing.T) (one *process, nodes []*natscluster.Backend, again func() *process) {
	t.Helper()
	dir, routes := t.TempDir(), freePorts(t, 3)
	again = func() *process { return startProcess(t, core(t, dir, routes, 0).Embed) }
	one, nodes = again(), make([]*natscluster.Backend, 3)
	var wg sync.WaitGroup
	for i := 1; i < 3; i++ {
		wg.Go(func() {
			var err error
			if nodes[i], err = natscluster.Open(t.Context(), core(t, dir, routes, i)); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	if t.Failed() {
		t.FailNow()
	}
	t.Cleanup(nodes[2].Close)
	<-one.ready
	return one, nodes, again
}

// TestFailover kills a node during writes, restarts it, and closes another node. It checks that no
// acknowledged write is lost, and that writes continue.
func TestFailover(t *testing.T) {
	t.Parallel()
	killed, nodes, again := openWithProcess(t)
	defer nodes[1].Close()
	log, err := nodes[2].Log(t.Context(), "failover", cluster.LogOptions{MaxEntries: 100_000})
	if err != nil {
		t.Fatal(err)
	}
	var buckets []cluster.Records
	for i := range 2 {
		r, err := nodes[1+i].Records(t.Context(), "failover", cluster.RecordsOptions{Durable: true})
		if err != nil {
			t.Fatal(err)
		}
		buckets = append(buckets, r)
	}
	// phase writes until fault has returned and each writer has written again.
	phase := func(what string, fault func()) {
		t.Helper()
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		var wg sync.WaitGroup
		var writers []*writer
		for i := range 12 { // most shards
			w := &writer{key: cluster.LogKey{Group: fmt.Sprint(what, i), Name: "n"}, acked: map[int]uint64{}}
			writers = append(writers, w)
			wg.Go(func() {
				if err := w.run(ctx, log); err != nil {
					t.Error(err)
				}
			})
		}
		var h history.History
		for i := range 3 {
			wg.Go(func() { h.Write(ctx, i, buckets[1], what, 2000) })
		}
		<-time.After(time.Second)
		fault()
		faultAt := time.Now()
		for _, w := range writers {
			for w.last.Load().Before(faultAt.Add(time.Second)) {
				if time.Since(faultAt) > 30*time.Second {
					t.Errorf("%s: no write to %v for 30 s", what, w.key)
					break
				}
				<-time.After(50 * time.Millisecond)
			}
		}
		// The stream of the record may have no leader for longer than those of the writers.
		for h.Succeeded() < 10 && time.Since(faultAt) < 30*time.Second {
			<-time.After(50 * time.Millisecond)
		}
		cancel()
		wg.Wait()
		load, _ := os.ReadFile("/proc/loadavg") // for the figures in the log
		var gaps []time.Duration
		for _, w := range writers {
			w.check(t, log)
			gaps = append(gaps, w.gap.Round(time.Millisecond))
		}
		slices.Sort(gaps)
		t.Logf("%s: writers without an acknowledgment for %v; load %s", what, gaps, load)
		writes, succeeded, err := h.Check()
		t.Logf("%d writes of a record, %d succeeded", writes, succeeded)
		if err != nil || succeeded < 10 {
			t.Errorf("got %d of %d writes: %v", succeeded, writes, err)
		}
	}
	phase("kill", killed.kill)
	select {
	case <-again().ready:
	case <-time.After(20 * time.Second):
		t.Fatal("the killed node has not restarted")
	}
	phase("stop", nodes[1].Close)
}

// TestWaitForLeader checks that calls of a bucket wait for a new leader after the loss of a node,
// until their contexts end.
func TestWaitForLeader(t *testing.T) {
	t.Parallel()
	killed, nodes, _ := openWithProcess(t)
	defer nodes[1].Close()
	var buckets []cluster.Records
	for i := range 9 { // the node that is killed leads some of them
		r, err := nodes[1].Records(t.Context(), fmt.Sprint("b", i), cluster.RecordsOptions{})
		if err == nil {
			_, err = r.Put(t.Context(), "key", nil, 0)
		}
		if err != nil && !errors.Is(err, cluster.ErrConflict) { // of a new stream that gets a leader
			t.Fatal(err)
		}
		buckets = append(buckets, r)
	}
	killed.kill()
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Second)
	defer cancel()
	var wg sync.WaitGroup
	for i, r := range buckets {
		wg.Go(func() {
			if _, err := r.Get(ctx, "key"); err != nil {
				t.Errorf("get from bucket %d: %v", i, err)
			}
		})
		wg.Go(func() {
			if _, err := r.Put(ctx, "other", []byte{1}, 0); err != nil && !errors.Is(err, cluster.ErrConflict) {
				t.Errorf("put into bucket %d: %v", i, err)
			}
			if _, err := r.Get(ctx, "other"); err != nil {
				t.Errorf("get what was put into bucket %d: %v", i, err)
			}
		})
	}
	wg.Wait()
}

// TestAbsentAlone checks that a node without a majority does not report that a record is absent,
// although the streams that it has led answer reads for some seconds.
func TestAbsentAlone(t *testing.T) {
	t.Parallel()
	nodes, _ := openThree(t, t.TempDir())
	var buckets []cluster.Records
	for i := range 9 { // the first node leads some of them
		r, err := nodes[0].Records(t.Context(), fmt.Sprint("b", i), cluster.RecordsOptions{Durable: i%2 == 0})
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
		defer cancel()
		if err := r.Absent(ctx, "key"); err != nil {
			t.Fatal(err)
		}
		buckets = append(buckets, r)
	}
	var wg sync.WaitGroup
	wg.Go(nodes[1].Close)
	wg.Go(nodes[2].Close)
	wg.Wait()
	var answers atomic.Int32
	for i, r := range buckets {
		wg.Go(func() {
			ctx, cancel := context.WithTimeout(t.Context(), coordination.CallTimeout)
			defer cancel()
			if _, err := r.Get(ctx, "key"); errors.Is(err, cluster.ErrNotFound) {
				answers.Add(1)
			}
			if err := r.Absent(ctx, "key"); !errors.Is(err, cluster.ErrUnavailable) && !errors.Is(err, context.DeadlineExceeded) {
				t.Errorf("absent in bucket %d: got %v, want %v", i, err, cluster.ErrUnavailable)
			}
		})
	}
	wg.Wait()
	t.Logf("%d buckets answer reads", answers.Load())
}

// TestWriteDuringElection checks that a write does not conflict with itself if NATS announces the
// leader of a new bucket after the leader stored it.
func TestWriteDuringElection(t *testing.T) {
	t.Parallel()
	all, _ := openThree(t, t.TempDir())
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Second)
	defer cancel()
	const clients = 6
	var wg sync.WaitGroup
	defer wg.Wait()
	for c := range clients {
		wg.Go(func() {
			for i := c; i < 60; i += clients {
				r, err := all[i%3].Records(ctx, fmt.Sprint("b", i), cluster.RecordsOptions{MaxBytes: 1 << 20})
				if err != nil {
					t.Error(err)
					return
				}
				rev, err := r.Put(ctx, "k", []byte("v"), 0)
				if err == nil {
					err = r.Delete(ctx, "k", rev)
				}
				if err != nil {
					t.Errorf("bucket %d: %v", i, err)
					return
				}
			}
		})
	}
}
