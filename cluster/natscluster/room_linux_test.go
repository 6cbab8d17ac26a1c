package natscluster_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"mcpwire/cluster"
	"mcpwire/cluster/natscluster"
	"mcpwire/internal/base/coordination"
	"mcpwire/internal/test/wait"
)

// smallDisk mounts a disk of 64 MiB at dir, or skips the test.
func smallDisk(t *testing.T, dir string) {
	t.Helper()
	if err := os.MkdirAll(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := syscall.Mount("tmpfs", dir, "tmpfs", 0, "size=64m"); err != nil {
		t.Skipf("only root can mount a disk: %v", err)
	}
	t.Cleanup(func() {
		if err := syscall.Unmount(dir, syscall.MNT_DETACH); err != nil {
			t.Error(err)
		}
	})
}

// fill fills the disk of a directory.
func fill(t *testing.T, dir string) (free func()) {
	t.Helper()
	f, err := os.Create(filepath.Join(dir, "filler"))
	if err != nil {
		t.Fatal(err)
	}
	for _, size := range []int{1 << 20, 1} {
		for err = nil; err == nil; _, err = f.Write(make([]byte, size)) {
		}
	}
	if !errors.Is(err, syscall.ENOSPC) {
		t.Fatal(err)
	}
	return func() {
		if err := errors.Join(f.Close(), os.Remove(f.Name())); err != nil {
			t.Error(err)
		}
	}
}

// TestDiskFull fills the disks of two of three core nodes. They say so, and store again, with what
// they had, when there is room.
func TestDiskFull(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	disk := func(i int) string { return filepath.Join(dir, fmt.Sprint("n", i)) }
	for i := range 3 {
		smallDisk(t, disk(i))
	}
	nodes, _ := openThree(t, dir)
	var buckets []cluster.Records
	for i, b := range nodes {
		r, err := b.Records(t.Context(), "b", cluster.RecordsOptions{Durable: true})
		if err != nil {
			t.Fatal(err)
		}
		buckets = append(buckets, r)
		if err := b.Check(); err != nil {
			t.Errorf("node %d: %v", i, err)
		}
	}
	put := func(i int, key string) error {
		ctx, cancel := context.WithTimeout(t.Context(), coordination.CallTimeout)
		defer cancel()
		_, err := buckets[i].Put(ctx, key, make([]byte, 1000), 0)
		if errors.Is(err, cluster.ErrConflict) { // of an attempt without a response
			return nil
		}
		return err
	}
	wait.Until(t, "a record is stored", func() bool { return put(0, "before") == nil })
	free := []func(){fill(t, disk(0)), fill(t, disk(1))}
	for i := range free {
		n := 0
		wait.Until(t, fmt.Sprintf("node %d says that its disk is full", i), func() bool {
			n++
			_ = put(2, fmt.Sprint("full", i, ".", n))
			err := nodes[i].Check()
			return err != nil && strings.Contains(err.Error(), "no space left on device")
		})
	}
	if err := nodes[2].Check(); err != nil {
		t.Errorf("a node with room: %v", err)
	}
	for _, f := range free {
		f()
	}
	began := time.Now()
	for i := range nodes {
		wait.Until(t, fmt.Sprintf("node %d stores again", i), func() bool { return nodes[i].Check() == nil && put(i, fmt.Sprint("after", i)) == nil })
	}
	t.Logf("all store %v after there is room", time.Since(began))
	for i, r := range buckets {
		wait.Until(t, fmt.Sprintf("node %d finds what was stored before", i), func() bool {
			ctx, cancel := context.WithTimeout(t.Context(), coordination.CallTimeout)
			defer cancel()
			rec, err := r.Get(ctx, "before")
			return err == nil && len(rec.Value) == 1000
		})
	}
}

// TestStartDiskFull starts a node while its disk is full: it waits for room, and if there is none,
// its error has the cause.
func TestStartDiskFull(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	smallDisk(t, dir)
	free := fill(t, dir)
	o := natscluster.Options{Logger: quiet, Embed: &natscluster.Embed{Dir: dir}}
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	if _, err := natscluster.Open(ctx, o); err == nil || !strings.Contains(err.Error(), "no space left on device") {
		t.Errorf("got error %v", err)
	}
	log := new(logText)
	o.Logger = log.logger()
	var wg sync.WaitGroup
	wg.Go(func() {
		b, err := natscluster.Open(t.Context(), o)
		if err != nil {
			t.Error(err)
			return
		}
		b.Close()
	})
	wait.Until(t, "the node waits for room", func() bool { return log.has("waiting for room on the disk") })
	free()
	wg.Wait()
}
