package auth

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"
)

// ErrNotStored is returned by [Store.Load] if there is no record with the key.
var ErrNotStored = errors.New("not stored")

// A RecordKey names a record of a [Store]. The empty text is a value like any other: a client's registration has no Resource and no ClientID, and the record that
// says where a resource's tokens are has neither Issuer nor ClientID.
type RecordKey struct {
	Issuer, Resource, ClientID, Account string
}

// A Record is what a client keeps for next time. Which of its fields are set depends on the key. See [EncodeRecord] for how to keep it.
type Record struct {
	// Issuer and ClientID say where the tokens of a resource are.
	Issuer, ClientID string
	// Client is what an authorization server said when the client was registered there.
	Client *RegisteredClient
	// Tokens are of the client ClientID, for one resource.
	Tokens *Tokens
	// ProofKey is the private key that tokens are bound to, if they are.
	ProofKey Secret
}

// A RegisteredClient is an authorization server's answer to a registration. See https://www.rfc-editor.org/rfc/rfc7591#section-3.2.1.
type RegisteredClient struct {
	ID     string
	Secret Secret
	// SecretExpiry is zero if the secret does not expire.
	SecretExpiry time.Time
	// AuthMethod is how the client authenticates at the token endpoint, as "none".
	AuthMethod   string
	RedirectURIs []string
}

// Tokens are what a token endpoint answered with.
type Tokens struct {
	Access, Refresh Secret
	// Type is "Bearer" or "DPoP".
	Type string
	// Expiry is zero if it is not known.
	Expiry time.Time
	// Endpoint is the token endpoint, the only one that Refresh is ever sent to.
	Endpoint string
	// AuthMethod is how the client authenticates there.
	AuthMethod string
	// Resource is what was sent as resource.
	Resource string
	// Requested and Granted are scopes.
	Requested, Granted []string
}

// A Store keeps records. Implementations must be safe for use by many goroutines. What Load returns belongs to the caller, and what Save gets must not be
// kept or changed after it returns.
//
// Save must have made the record last when it returns: an authorization server may accept a refresh token once, and the new one is in the record.
type Store interface {
	// Load returns the record with this key, or an error that wraps [ErrNotStored].
	Load(ctx context.Context, key RecordKey) (*Record, error)
	Save(ctx context.Context, key RecordKey, record *Record) error
	// Delete removes a record. It is no error if there is none.
	Delete(ctx context.Context, key RecordKey) error
}

// A StoreLocker is a [Store] that several processes may use. A client holds the lock while it refreshes tokens and looks first whether another process did.
type StoreLocker interface {
	Store
	// Lock waits for the lock until ctx ends. unlock must be called once.
	Lock(ctx context.Context) (unlock func(), err error)
}

// A LoginLocker is a [Store] of users who may have several processes at once that need them to log in. The client that has the lock asks the user; the others wait
// for what comes of it, and take the token that is in the store then.
type LoginLocker interface {
	Store
	// LockLogin waits for the lock of a resource until ctx ends. If another has it, waiting is called first, and vain reports whether the last one that had it asked in
	// vain: then the user is not to be asked again at once. unlock must be called once, and says how it went.
	LockLogin(ctx context.Context, resource string, waiting func()) (unlock func(vain bool), vain bool, err error)
}

// storedRecord is the form in which a record is kept, secrets included.
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

// EncodeRecord returns a record as JSON, secrets included. It is for implementations of [Store], and what it returns must be kept like a password.
func EncodeRecord(r *Record) ([]byte, error) {
	b, err := json.Marshal(r.stored())
	if err != nil {
		return nil, fmt.Errorf("encoding a record: %w", err)
	}
	return b, nil
}

// DecodeRecord is the reverse of [EncodeRecord].
func DecodeRecord(b []byte) (*Record, error) {
	var s storedRecord
	if json.Unmarshal(b, &s) != nil {
		// The decoder's error could quote a secret.
		return nil, errors.New("malformed record")
	}
	return s.record(), nil
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
	r := &Record{Issuer: s.Issuer, ClientID: s.ClientID, ProofKey: NewSecret(s.ProofKey)}
	if c := s.Client; c != nil {
		r.Client = &RegisteredClient{c.ID, NewSecret(c.Secret), c.SecretExpiry, c.AuthMethod, c.RedirectURIs}
	}
	if t := s.Tokens; t != nil {
		r.Tokens = &Tokens{NewSecret(t.Access), NewSecret(t.Refresh), t.Type, t.Expiry, t.Endpoint, t.AuthMethod, t.Resource, t.Requested, t.Granted}
	}
	return r
}

// clone returns a copy that shares nothing that can be changed.
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
