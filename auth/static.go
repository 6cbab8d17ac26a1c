package auth

import (
	"context"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/hex"
	"errors"
	"fmt"
	"log/slog"
	"time"
)

// StaticIssuer is the issuer of principals of fixed tokens. No authorization server can have this name.
const StaticIssuer = "static"

// minStaticToken is the length of the shortest fixed token, in bytes. 16 random characters cannot be guessed.
const minStaticToken = 16

// A StaticToken is a fixed token, and whose it is. Either Token or SHA256 is given.
type StaticToken struct {
	// Token is the token: at least 16 characters that are hard to guess, of those that https://www.rfc-editor.org/rfc/rfc6750#section-2.1 allows. Only its
	// hash is kept.
	Token string
	// SHA256 is the hash of the token in hexadecimal digits, so that a configuration need not have the token itself. The token must be random: hashes of
	// words can be reversed.
	SHA256 string
	// Subject names the owner and is required. ClientID may be empty.
	Subject, ClientID string
	// Scopes is what the token grants.
	Scopes []string
	// Expires is when the token ends; zero means never.
	Expires time.Time
}

// Static verifies fixed tokens. It may be used by many goroutines at once.
type Static struct{ entries []staticEntry }

type staticEntry struct {
	digest    [sha256.Size]byte
	principal *Principal
}

// NewStatic returns a verifier of fixed tokens. The error says which token is wrong by its place, not by its text.
func NewStatic(tokens ...StaticToken) (*Static, error) {
	s := &Static{}
	for i, t := range tokens {
		digest, err := t.digest()
		if err == nil {
			err = checkScopes(t.Scopes)
		}
		if err == nil && t.Subject == "" {
			err = errors.New("it has no subject")
		}
		for _, e := range s.entries {
			if e.digest == digest && err == nil {
				err = errors.New("it is there twice")
			}
		}
		if err != nil {
			return nil, fmt.Errorf("auth: fixed token %d: %w", i, err)
		}
		s.entries = append(s.entries, staticEntry{digest, &Principal{
			Issuer: StaticIssuer, Subject: t.Subject, ClientID: t.ClientID, Scopes: unique(t.Scopes), Expires: t.Expires,
		}})
	}
	if len(s.entries) == 0 {
		return nil, errors.New("auth: no fixed tokens")
	}
	return s, nil
}

// String returns the subject, so that no log shows the token by accident.
func (t StaticToken) String() string { return t.Subject }

// LogValue returns the subject, for the same reason.
func (t StaticToken) LogValue() slog.Value { return slog.StringValue(t.Subject) }

func (t StaticToken) digest() (d [sha256.Size]byte, err error) {
	switch {
	case (t.Token == "") == (t.SHA256 == ""):
		return d, errors.New("either the token or its hash has to be given")
	case t.SHA256 != "":
		b, err := hex.DecodeString(t.SHA256)
		if err != nil || len(b) != len(d) {
			return d, errors.New("the hash is no SHA-256 in hexadecimal digits") // the error of hex would quote it
		}
		return [sha256.Size]byte(b), nil
	case len(t.Token) < minStaticToken:
		return d, fmt.Errorf("it is shorter than %d characters", minStaticToken)
	case len(t.Token) > maxToken || !validToken(t.Token):
		return d, errors.New("it has characters that a token cannot have, or is too long")
	}
	return sha256.Sum256([]byte(t.Token)), nil
}

// Verify returns whose token it is. It takes the same time for every token.
func (s *Static) Verify(_ context.Context, token string) (*Principal, error) {
	digest := sha256.Sum256([]byte(token))
	var found *Principal
	for i := range s.entries {
		if subtle.ConstantTimeCompare(digest[:], s.entries[i].digest[:]) == 1 {
			found = s.entries[i].principal
		}
	}
	switch {
	case found == nil:
		return nil, invalid("it is none of the fixed tokens")
	case !found.Expires.IsZero() && !time.Now().Before(found.Expires):
		return nil, invalid("it has expired")
	}
	return found, nil
}
