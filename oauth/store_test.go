package oauth_test

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"mcpwire/auth"
	"mcpwire/oauth"
)

var secretText = cmp.Comparer(func(a, b auth.Secret) bool { return a.Reveal() == b.Reveal() })

func fullRecord() *oauth.Record {
	return &oauth.Record{
		Issuer: "i", ClientID: "c", ProofKey: auth.NewSecret("k"),
		Client: &oauth.RegisteredClient{ID: "c", Secret: auth.NewSecret("s"), SecretExpiry: time.Unix(5, 0).UTC(), AuthMethod: "none", RedirectURIs: []string{"r"}},
		Tokens: &oauth.Tokens{
			Access: auth.NewSecret("a"), Refresh: auth.NewSecret("b"), Type: "Bearer", Expiry: time.Unix(6, 0).UTC(), Endpoint: "e", AuthMethod: "none",
			Resource: "r", Requested: []string{"x"}, Granted: []string{"y"},
		},
	}
}

// Spec: C158 C159
func TestStores(t *testing.T) {
	file, err := oauth.NewFileStore(filepath.Join(t.TempDir(), "sub", "tokens.json"))
	if err != nil {
		t.Fatal(err)
	}
	for name, s := range map[string]oauth.Store{"memory": oauth.NewMemoryStore(), "file": file} {
		t.Run(name, func(t *testing.T) {
			ctx := t.Context()
			key := oauth.RecordKey{Issuer: "i", Resource: "r", ClientID: "c", Account: "a"}
			if _, err := s.Load(ctx, key); !errors.Is(err, oauth.ErrNotStored) {
				t.Errorf("got %v", err)
			}
			if err := s.Delete(ctx, key); err != nil {
				t.Error(err)
			}
			for range 2 {
				if err := s.Save(ctx, key, fullRecord()); err != nil {
					t.Fatal(err)
				}
			}
			got, err := s.Load(ctx, key)
			if diff := cmp.Diff(fullRecord(), got, secretText); diff != "" || err != nil {
				t.Error(err, diff)
			}
			got.Tokens.Granted[0], got.Client.ID = "changed", "changed"
			if again, err := s.Load(ctx, key); err != nil || again.Tokens.Granted[0] != "y" || again.Client.ID != "c" {
				t.Errorf("the caller does not own the result of Load: %v", err)
			}
			for _, other := range []oauth.RecordKey{{}, {Issuer: "i"}, {Issuer: "i", Resource: "r", ClientID: "c"}, {Issuer: "ir", ClientID: "c", Account: "a"}} {
				if _, err := s.Load(ctx, other); !errors.Is(err, oauth.ErrNotStored) {
					t.Errorf("%v: got %v", other, err)
				}
			}
			if err := s.Delete(ctx, key); err != nil {
				t.Error(err)
			}
			if _, err := s.Load(ctx, key); !errors.Is(err, oauth.ErrNotStored) {
				t.Errorf("got %v", err)
			}
		})
	}
}

func TestFileStoreIsPrivate(t *testing.T) {
	if runtime.GOOS == "windows" {
		t.Skip("no modes")
	}
	dir := t.TempDir()
	path := filepath.Join(dir, "tokens.json")
	s, err := oauth.NewFileStore(path)
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Save(t.Context(), oauth.RecordKey{}, fullRecord()); err != nil {
		t.Fatal(err)
	}
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		info, err := e.Info()
		if err != nil {
			t.Fatal(err)
		}
		if info.Mode().Perm() != 0o600 || strings.HasSuffix(e.Name(), ".tmp") {
			t.Errorf("%s has mode %v", e.Name(), info.Mode())
		}
	}
	refused := func(what string) {
		t.Helper()
		_, loadErr := s.Load(t.Context(), oauth.RecordKey{})
		_, newErr := oauth.NewFileStore(path)
		for i, err := range []error{loadErr, s.Save(t.Context(), oauth.RecordKey{}, fullRecord()), newErr} {
			if err == nil || !strings.Contains(err.Error(), "other users could read or replace the file") {
				t.Errorf("%s, %d: got %v", what, i, err)
			}
		}
	}
	for _, mode := range []fs.FileMode{0o640, 0o604, 0o620, 0o666} {
		if err := os.Chmod(path, mode); err != nil {
			t.Fatal(err)
		}
		refused(mode.String())
	}
	if err := os.Chmod(path, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(path, path+".real"); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(path+".real", path); err != nil {
		t.Fatal(err)
	}
	refused("symbolic link")
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
	if err := os.Mkdir(path, 0o700); err != nil {
		t.Fatal(err)
	}
	refused("directory")
}

func TestFileStoreInvalidFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "tokens.json")
	for _, text := range []string{"", "SECRET", `{"records":[{"record":{"tokens":"SECRET"}}]}`} {
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if _, err := oauth.NewFileStore(path); err == nil || strings.Contains(err.Error(), "SECRET") {
			t.Errorf("%q: got %v", text, err)
		}
	}
}

// TestFileStoreConcurrent shows that concurrent changes of one file by several stores, as of
// several processes, are not lost.
func TestFileStoreConcurrent(t *testing.T) {
	path := filepath.Join(t.TempDir(), "tokens.json")
	var wg sync.WaitGroup
	for i := range 4 {
		s, err := oauth.NewFileStore(path)
		if err != nil {
			t.Fatal(err)
		}
		for j := range 3 {
			wg.Go(func() {
				if err := s.Save(t.Context(), oauth.RecordKey{Account: fmt.Sprint(i, j)}, fullRecord()); err != nil {
					t.Error(err)
				}
			})
		}
	}
	wg.Wait()
	s, err := oauth.NewFileStore(path)
	if err != nil {
		t.Fatal(err)
	}
	for i := range 4 {
		for j := range 3 {
			if _, err := s.Load(t.Context(), oauth.RecordKey{Account: fmt.Sprint(i, j)}); err != nil {
				t.Errorf("%d %d: %v", i, j, err)
			}
		}
	}
}

func TestFileStoreLock(t *testing.T) {
	path := filepath.Join(t.TempDir(), "tokens.json")
	var stores [2]oauth.StoreLocker
	for i := range stores {
		var err error
		if stores[i], err = oauth.NewFileStore(path); err != nil {
			t.Fatal(err)
		}
	}
	unlock, err := stores[0].Lock(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for i, s := range stores {
		ctx, cancel := context.WithTimeout(t.Context(), 1)
		if _, err := s.Lock(ctx); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("store %d: got %v", i, err)
		}
		cancel()
	}
	got := make(chan error)
	go func() {
		unlock, err := stores[1].Lock(t.Context())
		if err == nil {
			unlock()
		}
		got <- err
	}()
	unlock()
	if err := <-got; err != nil {
		t.Error(err)
	}
}

func ExampleNewFileStore() {
	dir, err := os.MkdirTemp("", "tokens")
	if err != nil {
		fmt.Println(err)
		return
	}
	defer os.RemoveAll(dir)
	store, err := oauth.NewFileStore(filepath.Join(dir, "tokens.json"))
	if err != nil {
		fmt.Println(err)
		return
	}
	_, err = oauth.NewClient(&oauth.ClientOptions{Store: store})
	fmt.Println(err)
	// Output: <nil>
}

// TestFileStoresShared shows that stores of one file, as of several processes, can save while
// others read all the time.
func TestFileStoresShared(t *testing.T) {
	path := filepath.Join(t.TempDir(), "tokens.json")
	open := func() oauth.Store {
		s, err := oauth.NewFileStore(path)
		if err != nil {
			t.Fatal(err)
		}
		return s
	}
	key := oauth.RecordKey{Issuer: "i"}
	if err := open().Save(t.Context(), key, fullRecord()); err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	var readers, writers sync.WaitGroup
	for range 3 {
		s := open()
		readers.Go(func() {
			for ctx.Err() == nil {
				if _, err := s.Load(ctx, key); err != nil && ctx.Err() == nil {
					t.Errorf("load: %v", err)
					return
				}
			}
		})
	}
	for range 2 {
		s := open()
		writers.Go(func() {
			for range 3 {
				if err := s.Save(t.Context(), key, fullRecord()); err != nil {
					t.Errorf("save: %v", err)
				}
			}
		})
	}
	writers.Wait()
	stop()
	readers.Wait()
}
