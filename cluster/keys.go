package cluster

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	"mcpwire/internal/base/defaults"
	"mcpwire/internal/base/wait"
	"mcpwire/server"
)

// KeysOptions say how keys are replaced.
type KeysOptions struct {
	// Rotate is the age at which a key is replaced. Zero means 24 h.
	Rotate time.Duration
	// Keep is how long a replaced key still opens what it has sealed. It must be longer than such a
	// text is valid: for server.Options.StateKeys that is InputOptions.StateTTL. Zero means 25 h.
	Keep time.Duration
	// Spread is the time in which all nodes learn of a new key, before one seals with it. Nodes
	// read the keys six times in Spread. Zero means 30 seconds.
	Spread time.Duration
}

// maxKeys limits the keys that are valid at once. It is that of seal.Ring.
const maxKeys = 16

const keyPurpose = "cluster keys 1" // increment for each format

// keyRing maintains the keys of one name.
type keyRing struct {
	n       *Node
	records *records
	name    string
	key     string
	opts    KeysOptions
	replace func(secrets ...[]byte) error
	// seen is when this node first saw each key.
	seen map[string]time.Time
	// current has the secrets of the last call of replace.
	current [][]byte
}

// ringRecord is the record of a keyRing, encrypted.
type ringRecord struct {
	// Keys are in the order of their creation.
	Keys []ringKey `json:"keys"`
}

type ringKey struct {
	Secret  []byte    `json:"secret"`
	Created time.Time `json:"created"`
	// Active is when the key began to seal. It is zero before that.
	Active time.Time `json:"active,omitzero"`
}

// Keys maintains secrets that all nodes share under a name. It calls replace with them before it
// returns, and whenever they change until the node is closed. The first secret seals, all of them
// open. A new secret of 32 random bytes opens at all nodes before it seals. While the backend is
// unavailable, the secrets stay. o may be nil.
func (n *Node) Keys(ctx context.Context, name string, o *KeysOptions, replace func(secrets ...[]byte) error) error {
	k := &keyRing{n: n, name: name, key: n.key("keys", name), replace: replace, seen: make(map[string]time.Time)}
	if o != nil {
		k.opts = *o
	}
	defaults.IfNotPositive(&k.opts.Rotate, 24*time.Hour)
	defaults.IfNotPositive(&k.opts.Keep, 25*time.Hour)
	defaults.IfNotPositive(&k.opts.Spread, 30*time.Second)
	switch {
	case n.secrets == nil && !n.opts.InsecureKeys:
		return fmt.Errorf("keys %s: the backend would store them as plain text: set NodeOptions.Secrets, or InsecureKeys if everyone with access to the backend may read them", name)
	case k.opts.Rotate < 2*k.opts.Spread:
		return fmt.Errorf("keys %s: Rotate is %v, and Spread %v: Rotate must be at least twice that", name, k.opts.Rotate, k.opts.Spread)
	case k.opts.Keep/k.opts.Rotate > maxKeys-4:
		return fmt.Errorf("keys %s: Rotate is %v: with Keep %v, more than %d keys would be valid", name, k.opts.Rotate, k.opts.Keep, maxKeys)
	}
	var err error
	if k.records, err = n.records(ctx, "keys", RecordsOptions{Durable: true}); err != nil {
		return err
	}
	if err := k.load(ctx); err != nil {
		return err
	}
	if !n.start(k.run) {
		return ErrClosed
	}
	return nil
}

// StateKeys returns the keys for server.Options.StateKeys, which [Node.Keys] maintains. o may be
// nil.
func (n *Node) StateKeys(ctx context.Context, o *KeysOptions) (*server.StateKeys, error) {
	keys := new(server.StateKeys)
	if err := n.Keys(ctx, "state", o, keys.Replace); err != nil {
		return nil, err
	}
	return keys, nil
}

// load reads or creates the keys. A backend whose bucket was just created may need some seconds.
func (k *keyRing) load(ctx context.Context) error {
	ctx, cancel := context.WithTimeoutCause(ctx, openTimeout, errOpenTimeout)
	defer cancel()
	for {
		err := k.refresh(ctx)
		if !errors.Is(err, ErrUnavailable) || !wait.Sleep(ctx, minBackoff) {
			return err
		}
	}
}

// run refreshes the keys until the node is closed.
func (k *keyRing) run(ctx context.Context) {
	for failures := 0; wait.Sleep(ctx, k.opts.Spread/6); {
		err := k.refresh(ctx)
		switch {
		case err == nil:
			failures = 0
		case ctx.Err() != nil:
			return
		default:
			if failures++; failures == 3 {
				k.n.opts.Logger.Error("the keys of the cluster cannot be read", "keys", k.name, "error", err)
			}
		}
	}
}

var errNoChange = errors.New("no change")

// refresh reads the keys, creates, promotes or removes one if it is time, and replaces those in
// use.
func (k *keyRing) refresh(ctx context.Context) error {
	var ring *ringRecord
	_, _, err := k.records.update(ctx, k.key, func(old []byte) ([]byte, error) {
		var err error
		if ring, err = k.decode(old); err != nil {
			return nil, err
		}
		if !k.rotate(ring, time.Now()) {
			return nil, errNoChange
		}
		text, err := json.Marshal(ring)
		if err != nil {
			return nil, err
		}
		return k.n.seal(keyPurpose, k.key, text)
	})
	if err != nil && err != errNoChange {
		return fmt.Errorf("keys %s: %w", k.name, err)
	}
	secrets := ring.secrets()
	if slices.EqualFunc(secrets, k.current, slices.Equal) {
		return nil
	}
	if err := k.replace(secrets...); err != nil {
		return fmt.Errorf("keys %s: %w", k.name, err)
	}
	k.current = secrets
	return nil
}

func (k *keyRing) decode(value []byte) (*ringRecord, error) {
	ring := new(ringRecord)
	if value == nil {
		return ring, nil
	}
	text, err := k.n.unseal(keyPurpose, k.key, value)
	if err != nil {
		return nil, err
	}
	if err := json.Unmarshal(text, ring); err != nil || len(ring.Keys) == 0 || len(ring.Keys) > maxKeys {
		return nil, fmt.Errorf("cluster: invalid record of keys: %w", errors.Join(err))
	}
	return ring, nil
}

// rotate changes the keys if it is time, and reports whether it has. The ages of keys are by the
// clocks of the nodes that changed them. But a node lets a key seal only when it has itself seen
// the key for Spread.
func (k *keyRing) rotate(ring *ringRecord, now time.Time) bool {
	if len(ring.Keys) == 0 {
		ring.Keys = []ringKey{{newSecret(), now, now}}
		return true
	}
	seen := make(map[string]time.Time, len(ring.Keys))
	for _, key := range ring.Keys {
		at, ok := k.seen[string(key.Secret)]
		if !ok {
			at = now
		}
		seen[string(key.Secret)] = at
	}
	k.seen = seen
	changed := false
	last := &ring.Keys[len(ring.Keys)-1]
	switch {
	case last.Active.IsZero() && now.Sub(seen[string(last.Secret)]) >= k.opts.Spread:
		last.Active = now
		changed = true
	case !last.Active.IsZero() && now.Sub(last.Created) >= k.opts.Rotate && len(ring.Keys) < maxKeys:
		ring.Keys = append(ring.Keys, ringKey{Secret: newSecret(), Created: now})
		changed = true
	}
	// The first key is unused since the second one became active.
	for len(ring.Keys) > 1 && !ring.Keys[1].Active.IsZero() && now.Sub(ring.Keys[1].Active) >= k.opts.Keep {
		ring.Keys = ring.Keys[1:]
		changed = true
	}
	return changed
}

func newSecret() []byte {
	secret := make([]byte, 32)
	rand.Read(secret) // never fails
	return secret
}

// secrets returns the secret that seals, and then the others.
func (r *ringRecord) secrets() [][]byte {
	sealing := 0
	for i, key := range r.Keys {
		if !key.Active.IsZero() {
			sealing = i
		}
	}
	secrets := [][]byte{r.Keys[sealing].Secret}
	for i, key := range r.Keys {
		if i != sealing {
			secrets = append(secrets, key.Secret)
		}
	}
	return secrets
}
