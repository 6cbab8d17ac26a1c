package oauth

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"sync"
	"time"

	"mcpwire/auth"
	"mcpwire/internal/base/wait"
	"mcpwire/internal/proc/filelock"
	"mcpwire/internal/proc/inuse"
)

// ErrNotStored is the error of [Store.Load] for an unknown key.
var ErrNotStored = errors.New("not stored")

// A RecordKey identifies a record of a [Store]. Fields may be empty: a client's registration has no
// Resource and no ClientID, and the record that says where a resource's tokens are has no Issuer
// and no ClientID.
type RecordKey struct {
	// Issuer is the authorization server, Resource the canonical URL of the MCP server, ClientID
	// the client's id at the authorization server, and Account [ClientOptions.Account].
	Issuer, Resource, ClientID, Account string
}

// A Record is persistent state of a client. The key determines which fields are set. Its
// secrets are hidden when it is marshaled, so a [Store] must write what [Record.MarshalSecrets]
// or [auth.Secret.Reveal] returns.
type Record struct {
	// Issuer and ClientID say where the tokens of a resource are.
	Issuer, ClientID string
	// Client is the client's registration at an authorization server.
	Client *RegisteredClient
	// Tokens belong to the client ClientID, for one resource.
	Tokens *Tokens
	// ProofKey is the private key that the tokens are bound to. It may be empty.
	ProofKey auth.Secret
}

// A RegisteredClient is an authorization server's response to a registration. See
// https://www.rfc-editor.org/rfc/rfc7591#section-3.2.1.
type RegisteredClient struct {
	// ID is the client's id, and Secret its secret. A public client has no secret.
	ID     string
	Secret auth.Secret
	// SecretExpiry is zero if the secret does not expire.
	SecretExpiry time.Time
	// AuthMethod is how the client authenticates at the token endpoint.
	AuthMethod string
	// RedirectURIs are the redirect URIs that the client registered.
	RedirectURIs []string
}

// Tokens are the response of a token endpoint.
type Tokens struct {
	Access, Refresh auth.Secret
	// Type is "Bearer" or "DPoP".
	Type string
	// Expiry is zero if it is unknown.
	Expiry time.Time
	// Endpoint is the token endpoint. Refresh is sent only there.
	Endpoint string
	// AuthMethod is how the client authenticates at Endpoint.
	AuthMethod string
	// Resource is the value of the parameter resource.
	Resource string
	// Requested and Granted are scopes.
	Requested, Granted []string
}

// A Store stores records. Many goroutines may use it at once. The result of Load belongs to the
// caller. Save must not keep or change its argument after it returns.
//
// Save must have stored the record permanently when it returns: an authorization server may accept
// a refresh token only once, and the new one is in the record.
type Store interface {
	// Load returns the record with this key, or an error that wraps [ErrNotStored].
	Load(ctx context.Context, key RecordKey) (*Record, error)
	Save(ctx context.Context, key RecordKey, record *Record) error
	// Delete removes a record. It returns nil if the record does not exist.
	Delete(ctx context.Context, key RecordKey) error
}

// A StoreLocker is a [Store] for several processes. A client holds the lock while it refreshes
// tokens, and checks first whether another process did.
type StoreLocker interface {
	Store
	// Lock waits for the lock until ctx ends. unlock must be called once.
	Lock(ctx context.Context) (unlock func(), err error)
}

// A loginLocker is a part of some [Store] types, for users with several processes that need a login
// at once. The client with the lock asks the user; the others wait for the result, and take the
// token from the store.
type loginLocker interface {
	// LockLogin waits for the lock of a resource until ctx ends. If another process has it,
	// LockLogin calls waiting first, and failed reports whether the login of that process failed:
	// then the user must not be asked again at once. unlock must be called once, and says whether
	// the login failed.
	LockLogin(ctx context.Context, resource string, waiting func()) (unlock func(failed bool), failed bool, err error)
}

// storedRecord is the stored form of a record, including secrets.
type storedRecord struct {
	Issuer   string        `json:"issuer,omitempty"`
	ClientID string        `json:"client_id,omitempty"`
	Client   *storedClient `json:"client,omitempty"`
	Tokens   *storedTokens `json:"tokens,omitempty"`
	ProofKey string        `json:"proof_key,omitempty"`
}

type storedClient struct {
	ID           string    `json:"client_id"`
	Secret       string    `json:"client_secret,omitempty"`
	SecretExpiry time.Time `json:"client_secret_expiry,omitzero"`
	AuthMethod   string    `json:"token_endpoint_auth_method"`
	RedirectURIs []string  `json:"redirect_uris,omitempty"`
}

type storedTokens struct {
	Access     string    `json:"access_token"`
	Refresh    string    `json:"refresh_token,omitempty"`
	Type       string    `json:"token_type"`
	Expiry     time.Time `json:"expiry,omitzero"`
	Endpoint   string    `json:"token_endpoint"`
	AuthMethod string    `json:"token_endpoint_auth_method"`
	Resource   string    `json:"resource"`
	Requested  []string  `json:"requested,omitempty"`
	Granted    []string  `json:"granted,omitempty"`
}

func (r *Record) stored() *storedRecord {
	s := &storedRecord{Issuer: r.Issuer, ClientID: r.ClientID, ProofKey: r.ProofKey.Reveal()}
	if c := r.Client; c != nil {
		s.Client = &storedClient{c.ID, c.Secret.Reveal(), c.SecretExpiry, c.AuthMethod, c.RedirectURIs}
	}
	if t := r.Tokens; t != nil {
		s.Tokens = &storedTokens{t.Access.Reveal(), t.Refresh.Reveal(), t.Type, t.Expiry, t.Endpoint, t.AuthMethod, t.Resource, t.Requested, t.Granted}
	}
	return s
}

func (s *storedRecord) record() *Record {
	r := &Record{Issuer: s.Issuer, ClientID: s.ClientID, ProofKey: auth.NewSecret(s.ProofKey)}
	if c := s.Client; c != nil {
		r.Client = &RegisteredClient{c.ID, auth.NewSecret(c.Secret), c.SecretExpiry, c.AuthMethod, c.RedirectURIs}
	}
	if t := s.Tokens; t != nil {
		r.Tokens = &Tokens{auth.NewSecret(t.Access), auth.NewSecret(t.Refresh), t.Type, t.Expiry, t.Endpoint, t.AuthMethod, t.Resource, t.Requested, t.Granted}
	}
	return r
}

// MarshalSecrets returns the record, including its secrets, as JSON.
func (r *Record) MarshalSecrets() ([]byte, error) { return json.Marshal(r.stored()) }

// UnmarshalSecrets sets the record from the text that MarshalSecrets returned.
func (r *Record) UnmarshalSecrets(text []byte) error {
	var s storedRecord
	if err := json.Unmarshal(text, &s); err != nil {
		return errors.New("not a record of a token store") // the cause could quote a secret
	}
	*r = *s.record()
	return nil
}

// clone returns a copy that shares no mutable memory.
func (r *Record) clone() *Record {
	c := *r
	if r.Client != nil {
		client := *r.Client
		client.RedirectURIs = slices.Clone(client.RedirectURIs)
		c.Client = &client
	}
	if r.Tokens != nil {
		tokens := *r.Tokens
		tokens.Requested, tokens.Granted = slices.Clone(tokens.Requested), slices.Clone(tokens.Granted)
		c.Tokens = &tokens
	}
	return &c
}

type memoryStore struct {
	mu      sync.Mutex
	records map[RecordKey]*Record
}

// NewMemoryStore returns a [Store] that lasts as long as the process.
func NewMemoryStore() Store { return &memoryStore{records: map[RecordKey]*Record{}} }

func (m *memoryStore) Load(_ context.Context, key RecordKey) (*Record, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	r, ok := m.records[key]
	if !ok {
		return nil, ErrNotStored
	}
	return r.clone(), nil
}

func (m *memoryStore) Save(_ context.Context, key RecordKey, r *Record) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.records[key] = r.clone()
	return nil
}

func (m *memoryStore) Delete(_ context.Context, key RecordKey) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.records, key)
	return nil
}

const (
	// maxStoreBytes is far above the size of a person's records.
	maxStoreBytes = 8 << 20
	// lockPoll is the interval of attempts to get a lock that another process has.
	lockPoll = 50 * time.Millisecond
)

// errStoreUnsafe means that others could read or replace a file store.
var errStoreUnsafe = errors.New("other users could read or replace the file")

// fileStore stores all records in one file, which each change replaces. So changes hold a lock on a
// second file beside it.
type fileStore struct {
	path string
	// fileLock is held by the goroutine that has the lock file, because file locks exclude only
	// other processes. It has room for one.
	fileLock chan struct{}
	// refreshLock is held from Lock to unlock. It does not block Save and Load.
	refreshLock chan struct{}
}

// storeFile is the content of the file.
type storeFile struct {
	Records []storeEntry `json:"records"`
}

type storeEntry struct {
	Issuer   string        `json:"issuer"`
	Resource string        `json:"resource"`
	ClientID string        `json:"client_id"`
	Account  string        `json:"account"`
	Record   *storedRecord `json:"record"`
}

func (e *storeEntry) key() RecordKey { return RecordKey{e.Issuer, e.Resource, e.ClientID, e.Account} }

// NewFileStore returns a [StoreLocker] that stores its records in a file. Many processes may use
// the file; if several need a login at once, one of them asks the user. It creates the file, and
// lock files beside it, with mode 0600 when needed, and the directory with 0700. A file that others
// can read, or a symbolic link, is rejected, here and at each use. The tokens are as safe as the
// user's other files.
//
// Windows has no such modes: everyone who can read the directory can read the file, and no file is
// rejected for that. Directories below %LocalAppData% belong to the user alone. Systems without
// flock have no lock between processes.
func NewFileStore(path string) (StoreLocker, error) {
	path, err := filepath.Abs(path)
	if err != nil {
		return nil, fmt.Errorf("file store: %w", err)
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return nil, fmt.Errorf("file store: %w", err)
	}
	s := &fileStore{path: path, fileLock: make(chan struct{}, 1), refreshLock: make(chan struct{}, 1)}
	if _, err := s.read(); err != nil {
		return nil, err
	}
	return s, nil
}

// Load implements [Store].
func (s *fileStore) Load(ctx context.Context, key RecordKey) (*Record, error) {
	f, err := s.load(ctx)
	if err != nil {
		return nil, err
	}
	for i := range f.Records {
		if e := &f.Records[i]; e.key() == key && e.Record != nil {
			return e.Record.record(), nil
		}
	}
	return nil, ErrNotStored
}

// Keys returns the keys of all records.
func (s *fileStore) Keys(ctx context.Context) ([]RecordKey, error) {
	f, err := s.load(ctx)
	if err != nil {
		return nil, err
	}
	var keys []RecordKey
	for i := range f.Records {
		keys = append(keys, f.Records[i].key())
	}
	return keys, nil
}

// Save implements [Store].
func (s *fileStore) Save(ctx context.Context, key RecordKey, r *Record) error {
	return s.update(ctx, key, &storeEntry{key.Issuer, key.Resource, key.ClientID, key.Account, r.stored()})
}

// Delete implements [Store].
func (s *fileStore) Delete(ctx context.Context, key RecordKey) error { return s.update(ctx, key, nil) }

// Lock implements [StoreLocker].
func (s *fileStore) Lock(ctx context.Context) (func(), error) {
	return s.lockFile(ctx, s.refreshLock, s.path+".refresh.lock")
}

// failedMark is the content of a login's lock file if the login failed.
const failedMark = "failed\n"

// LockLogin implements [loginLocker]. Each resource has a lock file. Its content says how the last
// login ended.
func (s *fileStore) LockLogin(ctx context.Context, resource string, waiting func()) (unlock func(failed bool), failed bool, err error) {
	sum := sha256.Sum256([]byte(resource))
	waited := false
	file, err := openLocked(ctx, fmt.Sprintf("%s.login-%x.lock", s.path, sum[:8]), func() { waited = true; waiting() })
	if err != nil {
		return nil, false, err
	}
	var mark [len(failedMark)]byte
	n, _ := file.ReadAt(mark[:], 0) // an unreadable file has no mark
	failed = waited && string(mark[:n]) == failedMark
	if err := file.Truncate(0); err != nil {
		file.Close()
		return nil, false, fmt.Errorf("file store: %w", err)
	}
	return func(failed bool) {
		if failed {
			file.WriteAt([]byte(failedMark), 0) // without it the next process asks the user too
		}
		file.Close()
	}, failed, nil
}

// update replaces the entry of a key. A nil entry removes it.
func (s *fileStore) update(ctx context.Context, key RecordKey, entry *storeEntry) error {
	unlock, err := s.lockFile(ctx, s.fileLock, s.path+".lock")
	if err != nil {
		return err
	}
	defer unlock()
	f, err := s.read()
	if err != nil {
		return err
	}
	f.Records = slices.DeleteFunc(f.Records, func(e storeEntry) bool { return e.key() == key })
	if entry != nil {
		f.Records = append(f.Records, *entry)
	}
	return s.write(f)
}

// load reads the file. The file is replaced atomically, so that needs no lock. But Windows does not
// replace a file that is being read.
func (s *fileStore) load(ctx context.Context) (*storeFile, error) {
	if runtime.GOOS == "windows" {
		unlock, err := s.lockFile(ctx, s.fileLock, s.path+".lock")
		if err != nil {
			return nil, err
		}
		defer unlock()
	}
	return s.read()
}

// read reads the file, which others may replace meanwhile. A missing file has no records.
func (s *fileStore) read() (*storeFile, error) {
	file, err := openPrivate(s.path, os.O_RDONLY)
	if errors.Is(err, fs.ErrNotExist) {
		return &storeFile{}, nil
	}
	if err != nil {
		return nil, fmt.Errorf("file store: %w", err)
	}
	defer file.Close()
	b, err := io.ReadAll(io.LimitReader(file, maxStoreBytes+1))
	if err != nil {
		return nil, fmt.Errorf("file store: %w", err)
	}
	var f storeFile
	if len(b) > maxStoreBytes || json.Unmarshal(b, &f) != nil {
		return nil, fmt.Errorf("file store: %s is not a store of tokens", s.path)
	}
	return &f, nil
}

// write replaces the file. The file is on the disk, under its name, when write returns.
func (s *fileStore) write(f *storeFile) (err error) {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetIndent("", "\t")
	if err := e.Encode(f); err != nil {
		return fmt.Errorf("file store: %w", err)
	}
	if _, err = inuse.Replace(s.path, b.Bytes()); err == nil {
		err = syncDir(filepath.Dir(s.path))
	}
	if err != nil {
		return fmt.Errorf("file store: %w", err)
	}
	return nil
}

// syncDir makes the new name permanent. Windows needs nothing for that.
func syncDir(path string) error {
	if runtime.GOOS == "windows" {
		return nil
	}
	dir, err := os.Open(path)
	if err != nil {
		return err
	}
	defer dir.Close()
	return dir.Sync()
}

// lockFile waits for the lock among the goroutines of this store, and then for the lock of the
// file.
func (s *fileStore) lockFile(ctx context.Context, turn chan struct{}, path string) (unlock func(), err error) {
	select {
	case turn <- struct{}{}:
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	file, err := openLocked(ctx, path, func() {})
	if err != nil {
		<-turn
		return nil, err
	}
	return func() { file.Close(); <-turn }, nil
}

// openLocked waits for the lock of a file. It calls waiting if another process has it. It polls,
// since waiting for the system's lock cannot be canceled. Closing the file releases the lock.
func openLocked(ctx context.Context, path string, waiting func()) (_ *os.File, err error) {
	file, err := openPrivate(path, os.O_RDWR|os.O_CREATE)
	if err != nil {
		return nil, fmt.Errorf("file store: %w", err)
	}
	defer func() {
		if err != nil {
			file.Close()
		}
	}()
	for first := true; ; first = false {
		got, err := filelock.Try(file)
		if err != nil {
			return nil, fmt.Errorf("file store: %s: %w", path, err)
		}
		if got {
			return file, nil
		}
		if first {
			waiting()
		}
		if !wait.Sleep(ctx, lockPoll) {
			return nil, ctx.Err()
		}
	}
}

// openPrivate opens a regular file that nobody else can read or write. It rejects symbolic links.
func openPrivate(path string, flag int) (*os.File, error) {
	file, err := inuse.Open(path, flag|openNoFollow, 0o600)
	if err != nil {
		if isLinkError(err) {
			return nil, fmt.Errorf("%w: %s is a symbolic link", errStoreUnsafe, path)
		}
		return nil, err
	}
	info, err := file.Stat()
	if err == nil {
		err = checkPrivate(path, info)
	}
	if err != nil {
		file.Close()
		return nil, err
	}
	return file, nil
}

// checkPrivate checks the opened file, not the file that has its name by now.
func checkPrivate(path string, info fs.FileInfo) error {
	if !info.Mode().IsRegular() {
		return fmt.Errorf("%w: %s is not a regular file", errStoreUnsafe, path)
	}
	if runtime.GOOS == "windows" {
		if link, err := os.Lstat(path); err == nil && link.Mode()&fs.ModeSymlink != 0 {
			return fmt.Errorf("%w: %s is a symbolic link", errStoreUnsafe, path)
		}
		return nil
	}
	if p := info.Mode().Perm(); p&0o077 != 0 {
		return fmt.Errorf("%w: %s has mode %s; chmod 600 makes it private", errStoreUnsafe, path, p)
	}
	return checkOwner(path, info)
}
