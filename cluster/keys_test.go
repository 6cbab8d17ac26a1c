package cluster_test

import (
	"bytes"
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"mcpwire/cluster"
	"mcpwire/cluster/clustertest"
	"mcpwire/server"
	"mcpwire/streamable"
)

// A ring has the keys that Keys has set at one node.
type ring struct {
	mu      sync.Mutex
	secrets [][]byte
	// replaced counts the calls of replace.
	replaced int
}

func (r *ring) replace(secrets ...[]byte) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.secrets = secrets
	r.replaced++
	return nil
}

// opens reports whether the ring has the sealing key of another one.
func (r *ring) opens(other *ring) bool {
	other.mu.Lock()
	sealing := other.secrets[0]
	other.mu.Unlock()
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, s := range r.secrets {
		if bytes.Equal(s, sealing) {
			return true
		}
	}
	return false
}

func (r *ring) sealing() string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return string(r.secrets[0])
}

func secrets(n byte) [][]byte {
	return [][]byte{bytes.Repeat([]byte{n, n + 1}, 16)}
}

func TestKeys(t *testing.T) {
	opts := cluster.KeysOptions{Rotate: time.Hour, Keep: 65 * time.Minute}
	for _, o := range []*cluster.NodeOptions{nil, {Secrets: secrets(7)}} {
		inBubble(t, func(t *testing.T) {
			a, b, f := twoNodes(t, o)
			rings := []*ring{{}, {}}
			for i, n := range []*cluster.Node{a, b} {
				if err := n.Keys(t.Context(), "state", &opts, rings[i].replace); err != nil {
					t.Fatal(err)
				}
			}
			other := new(ring)
			if err := a.Keys(t.Context(), "other", nil, other.replace); err != nil {
				t.Fatal(err)
			}
			first := rings[0].sealing()
			if len(first) != 32 || rings[1].sealing() != first || other.sealing() == first {
				t.Errorf("got keys %x and %x of two nodes, and %x of another name", first, rings[1].sealing(), other.sealing())
			}
			sealed := map[string]time.Time{} // time at which each key was last used to seal
			for i := range 4 * 120 {         // four hours in steps of 30 s
				f.setDown(i%7 < 2) // down for one minute of every three and a half
				advance(30 * time.Second)
				if !rings[0].opens(rings[1]) || !rings[1].opens(rings[0]) {
					t.Fatalf("after %v a node cannot open what the other one seals", time.Duration(i)*30*time.Second)
				}
				for _, r := range rings {
					sealed[r.sealing()] = time.Now()
				}
				for key, at := range sealed {
					r := &ring{secrets: [][]byte{[]byte(key)}}
					if time.Since(at) < time.Hour && !rings[0].opens(r) {
						t.Fatalf("a key is unknown %v after it was used to seal", time.Since(at))
					}
				}
			}
			if n := len(sealed); n < 4 || n > 5 {
				t.Errorf("got %d keys in four hours", n)
			}
			if n := len(rings[0].secrets); n > 3 {
				t.Errorf("got %d valid keys", n)
			}
			if rings[0].replaced > 15 {
				t.Errorf("replace was called %d times", rings[0].replaced)
			}
			late := new(ring)
			if err := join(t, f.shared, o).Keys(t.Context(), "state", &opts, late.replace); err != nil {
				t.Fatal(err)
			}
			if !late.opens(rings[0]) || !rings[0].opens(late) {
				t.Error("a node that joined later has other keys")
			}
		})
	}
}

// TestKeysCreatedOnce checks that nodes that create the keys at the same time get the same ones.
func TestKeysCreatedOnce(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		shared := clustertest.NewMemory()
		var rings []*ring
		var wg sync.WaitGroup
		for range 8 {
			n, r := join(t, shared, nil), new(ring)
			rings = append(rings, r)
			wg.Go(func() {
				if err := n.Keys(t.Context(), "state", nil, r.replace); err != nil {
					t.Error(err)
				}
			})
		}
		wg.Wait()
		for _, r := range rings {
			if r.sealing() != rings[0].sealing() {
				t.Fatal("the keys differ")
			}
		}
	})
}

// A slowBucket is a backend whose bucket of keys does not respond in the first three seconds.
type slowBucket struct{ *faultyBackend }

func (b slowBucket) Records(ctx context.Context, name string, o cluster.RecordsOptions) (cluster.Records, error) {
	r, err := b.faultyBackend.Records(ctx, name, o)
	if err == nil && name == "keys" {
		b.setDown(true)
		time.AfterFunc(3*time.Second, func() { b.setDown(false) })
	}
	return r, err
}

// TestKeysWait checks that Keys waits for a bucket that was just created.
func TestKeysWait(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		n, start := join(t, slowBucket{newFaulty(clustertest.NewMemory())}, nil), time.Now()
		if _, err := n.StateKeys(t.Context(), nil); err != nil {
			t.Error(err)
		}
		if d := time.Since(start); d < 3*time.Second || d > 5*time.Second {
			t.Errorf("Keys took %v", d)
		}
	})
}

func TestKeysFail(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		shared := clustertest.NewMemory()
		ok := func(...[]byte) error { return nil }
		n := join(t, shared, &cluster.NodeOptions{Secrets: secrets(1)})
		for _, o := range []cluster.KeysOptions{{Rotate: time.Minute, Spread: time.Minute}, {Rotate: time.Hour, Keep: 24 * time.Hour}} {
			if err := n.Keys(t.Context(), "bad", &o, ok); err == nil {
				t.Errorf("Keys with %+v: got no error", o)
			}
		}
		if err := n.Keys(t.Context(), "state", nil, func(...[]byte) error { return fmt.Errorf("rejected") }); err == nil {
			t.Error("Keys = nil, want the error of replace")
		}
		for what, o := range map[string]*cluster.NodeOptions{"no secrets": nil, "other secrets": {Secrets: secrets(2)}} {
			err := join(t, shared, o).Keys(t.Context(), "state", nil, ok)
			if err == nil || !strings.Contains(err.Error(), "NodeOptions.Secrets") {
				t.Errorf("%s: %v", what, err)
			}
		}
		so, ho := new(server.Options), new(streamable.Options)
		plain := join(t, clustertest.NewMemory(), &cluster.NodeOptions{})
		if err := plain.Share(t.Context(), "site", so, ho); err == nil || !strings.Contains(err.Error(), "InsecureKeys") || so.StateKeys != nil || so.Bus != nil {
			t.Errorf("Share without secrets: %v, %+v", err, so)
		}
		if _, err := plain.StateKeys(t.Context(), nil); err == nil || !strings.Contains(err.Error(), "InsecureKeys") {
			t.Errorf("StateKeys without secrets: %v", err)
		}
		both := append(secrets(2), secrets(1)...)
		if err := join(t, shared, &cluster.NodeOptions{Secrets: both}).Keys(t.Context(), "state", nil, ok); err != nil {
			t.Errorf("an old secret: %v", err)
		}
		if _, err := n.StateKeys(t.Context(), nil); err != nil {
			t.Error(err)
		}
		r, err := shared.Records(t.Context(), "keys", cluster.RecordsOptions{})
		if err != nil {
			t.Fatal(err)
		}
		found := 0
		for c := range r.Watch(context.Background(), "") {
			if c.Kind == cluster.ChangeSynced {
				break
			}
			if found++; strings.Contains(string(c.Value), "secret") {
				t.Errorf("the backend has the keys unsealed: %q", c.Value)
			}
		}
		if found == 0 {
			t.Error("no keys are stored")
		}
		synctest.Wait()
	})
}
