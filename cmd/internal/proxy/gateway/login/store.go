package login

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"mcpwire/auth"
	"mcpwire/internal/base/seal"
	"mcpwire/oauth"
)

const (
	// purposeTokens is the purpose of sealed records.
	purposeTokens = "gateway login tokens 1"
	// maxRecord limits a sealed record, in bytes.
	maxRecord = 1 << 20
	// loginSuffix ends the names of files with the tokens of one user at one upstream.
	loginSuffix = ".login.json"
)

// A folder is where tokens are stored.
type folder struct {
	// dir is "" if tokens are in memory.
	dir    string
	ring   *seal.Ring
	memory oauth.Store
}

// openFolder opens or makes a folder. dir may be "", for tokens in memory.
func openFolder(dir string, ring *seal.Ring) (*folder, error) {
	f := &folder{dir: dir, ring: ring}
	if dir == "" {
		f.memory = oauth.NewMemoryStore()
		return f, nil
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, fmt.Errorf("open the folder of logins: %w", err)
	}
	return f, nil
}

// store returns the store for a user at an upstream.
func (f *folder) store(upstream, server, user string) (*store, error) {
	s := &store{account: upstream + " " + user, upstream: upstream, server: server, ring: f.ring, locked: make(chan struct{}, 1)}
	if f.dir == "" {
		s.own, s.clients = f.memory, f.memory
		return s, nil
	}
	sum := sha256.Sum256([]byte(s.account + "\x00" + server))
	own, err := oauth.NewFileStore(filepath.Join(f.dir, hex.EncodeToString(sum[:16])+loginSuffix))
	if err != nil {
		return nil, err
	}
	s.own = own
	s.clients, err = oauth.NewFileStore(filepath.Join(f.dir, "clients.json"))
	return s, err
}

// A store has the records of one user at one upstream. It is the oauth.StoreLocker of their client.
type store struct {
	// account is the name of the upstream, a space, and the user.
	account, upstream, server string
	own                       oauth.Store
	// clients has the registrations of the gateway at authorization servers, which all users share.
	clients oauth.Store
	ring    *seal.Ring
	// locked is held from Lock to unlock if own cannot be locked.
	locked chan struct{}
}

// place returns where a record is.
func (s *store) place(key oauth.RecordKey) (oauth.Store, oauth.RecordKey) {
	if key.Resource == "" {
		// Redirect URIs differ, and so do the clients.
		key.Account = s.upstream
		return s.clients, key
	}
	key.Resource = s.server // in one spelling
	return s.own, key
}

// Load implements oauth.Store.
func (s *store) Load(ctx context.Context, key oauth.RecordKey) (*oauth.Record, error) {
	in, key := s.place(key)
	r, err := in.Load(ctx, key)
	if err != nil || s.ring == nil {
		return r, err
	}
	plain, _, err := s.ring.Open(r.ProofKey.Reveal(), maxRecord, purposeTokens, keyData(key))
	if err != nil {
		return nil, fmt.Errorf("%w: it was sealed with another key", oauth.ErrNotStored)
	}
	own := &oauth.Record{}
	return own, own.UnmarshalSecrets(plain)
}

// Save implements oauth.Store. A sealed record is in the field for a key.
func (s *store) Save(ctx context.Context, key oauth.RecordKey, r *oauth.Record) error {
	in, key := s.place(key)
	if s.ring == nil {
		return in.Save(ctx, key, r)
	}
	plain, err := r.MarshalSecrets()
	if err != nil {
		return err
	}
	sealed, _, err := s.ring.Seal(nil, purposeTokens, plain, keyData(key))
	if err != nil {
		return err
	}
	return in.Save(ctx, key, &oauth.Record{ProofKey: auth.NewSecret(string(sealed))})
}

// Delete implements oauth.Store.
func (s *store) Delete(ctx context.Context, key oauth.RecordKey) error {
	in, key := s.place(key)
	return in.Delete(ctx, key)
}

// keyData returns what a sealed record is valid for.
func keyData(key oauth.RecordKey) []byte {
	return []byte(strings.Join([]string{key.Issuer, key.Resource, key.ClientID, key.Account}, "\x00"))
}

// Lock implements oauth.StoreLocker.
func (s *store) Lock(ctx context.Context) (unlock func(), err error) {
	if l, ok := s.own.(oauth.StoreLocker); ok {
		return l.Lock(ctx)
	}
	select {
	case s.locked <- struct{}{}:
		return func() { <-s.locked }, nil
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// tokens returns the stored tokens, or nil if there are none.
func (s *store) tokens(ctx context.Context) (*oauth.Tokens, error) {
	r, err := s.Load(ctx, oauth.RecordKey{Resource: s.server, Account: s.account})
	if err == nil {
		r, err = s.Load(ctx, oauth.RecordKey{Issuer: r.Issuer, Resource: s.server, ClientID: r.ClientID, Account: s.account})
	}
	if errors.Is(err, oauth.ErrNotStored) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	return r.Tokens, nil
}

// A Stored is a login in a folder.
type Stored struct {
	// Upstream is the name of the upstream, and Server its URL.
	Upstream, Server string
	// User is who has logged in: issuer and subject as in auth.Principal.ID, or "local".
	User string
	// Changed is when the tokens were last renewed.
	Changed time.Time

	path string
}

// List returns the logins in a folder, by user and upstream. The folder need not exist.
func List(ctx context.Context, dir string) ([]Stored, error) {
	files, err := os.ReadDir(dir)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	var list []Stored
	for _, file := range files {
		info, err := file.Info()
		if err != nil || !strings.HasSuffix(file.Name(), loginSuffix) {
			continue // it is another file, or was removed
		}
		path := filepath.Join(dir, file.Name())
		_, keys, err := openStored(ctx, path)
		if err != nil {
			return nil, err
		}
		if len(keys) == 0 {
			continue
		}
		upstream, user, _ := strings.Cut(keys[0].Account, " ")
		list = append(list, Stored{Upstream: upstream, Server: keys[0].Resource, User: user, Changed: info.ModTime(), path: path})
	}
	slices.SortFunc(list, func(a, b Stored) int {
		return cmp.Or(cmp.Compare(a.User, b.User), cmp.Compare(a.Upstream, b.Upstream), cmp.Compare(a.Server, b.Server))
	})
	return list, nil
}

// openStored opens a file, and returns the keys of its records.
func openStored(ctx context.Context, path string) (oauth.StoreLocker, []oauth.RecordKey, error) {
	s, err := oauth.NewFileStore(path)
	if err != nil {
		return nil, nil, err
	}
	keys, err := s.(interface {
		Keys(context.Context) ([]oauth.RecordKey, error)
	}).Keys(ctx)
	return s, keys, err
}

// Revoke deletes the tokens of a login. Running gateways notice it within seconds.
func (l Stored) Revoke(ctx context.Context) error {
	s, keys, err := openStored(ctx, l.path)
	if err != nil {
		return err
	}
	unlock, err := s.Lock(ctx) // no refresh writes new tokens after it
	if err != nil {
		return err
	}
	defer unlock()
	for _, key := range keys {
		err = errors.Join(err, s.Delete(ctx, key))
	}
	return err
}
