package natscluster_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"mcpwire/cluster"
	"mcpwire/cluster/natscluster"
)

// TestReplaceAll replaces one core node after the other. Each new node gets the stored data before
// the next one is replaced, so records in memory are not lost.
func TestReplaceAll(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	all, routes := openThree(t, dir)
	open := func(b *natscluster.Backend) cluster.Records {
		t.Helper()
		r, err := b.Records(ctx, "sessions", cluster.RecordsOptions{TTL: time.Hour})
		if err != nil {
			t.Fatal(err)
		}
		return r
	}
	const n = 100
	records := open(all[0])
	for i := range n {
		if _, err := records.Put(ctx, fmt.Sprint("k", i), make([]byte, 10_000), 0); err != nil {
			t.Fatal(err)
		}
	}
	for i := range all {
		all[i].Close()
		all[i] = openTest(t, core(t, dir, routes, i))
		records = open(all[i])
		if err := all[i].WaitCurrent(ctx); err != nil {
			t.Fatal(err)
		}
	}
	for i := range n {
		if _, err := records.Get(ctx, fmt.Sprint("k", i)); err != nil {
			t.Fatalf("record %d: %v", i, err)
		}
	}
	alone := openTest(t, natscluster.Options{Embed: &natscluster.Embed{Dir: t.TempDir()}})
	open(alone)
	if err := alone.WaitCurrent(ctx); err != nil {
		t.Error(err)
	}
}
