package auth_test

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"mcpwire/auth"
)

func TestAnyOf(t *testing.T) {
	says := func(subject string, err error) auth.Verifier {
		return verifierFunc(func(context.Context, string) (*auth.Principal, error) {
			if err != nil || subject == "" {
				return nil, err
			}
			return &auth.Principal{Subject: subject}, nil
		})
	}
	no, down, ok, nothing := says("", auth.ErrInvalidToken), says("", auth.ErrUnavailable), says("ok", nil), says("", nil)
	broken := says("", errors.New("broken"))
	for _, tt := range []struct {
		name      string
		verifiers []auth.Verifier
		want      error
	}{
		{"none", nil, auth.ErrInvalidToken},
		{"nobody", []auth.Verifier{no, no}, auth.ErrInvalidToken},
		{"last", []auth.Verifier{no, down, broken, nothing, ok}, nil},
		{"one is down", []auth.Verifier{no, down, no}, auth.ErrUnavailable},
		{"one is broken", []auth.Verifier{broken, no}, auth.ErrUnavailable},
		{"one returns neither a principal nor an error", []auth.Verifier{nothing, no}, auth.ErrUnavailable},
	} {
		p, err := auth.AnyOf(tt.verifiers...).Verify(t.Context(), "x")
		if !errors.Is(err, tt.want) || (err == nil) != (p != nil) || tt.want == auth.ErrUnavailable && errors.Is(err, auth.ErrInvalidToken) {
			t.Errorf("%s: %v, %v, want %v", tt.name, p, err, tt.want)
		}
	}
}

// TestAnyOfFinal shows that a token of an issuer with known keys is not passed to other verifiers.
func TestAnyOfFinal(t *testing.T) {
	key := newRSKey(t, "1")
	asked := 0
	other := verifierFunc(func(context.Context, string) (*auth.Principal, error) {
		asked++
		return nil, auth.ErrInvalidToken
	})
	v := auth.AnyOf(rsJWT(t, auth.JWTOptions{}, key), other)
	wantVerify(t, v, key.token(t, map[string]any{"aud": "https://other.example"}), auth.ErrInvalidToken)
	if asked != 0 {
		t.Error("the token was passed to another verifier")
	}
	wantVerify(t, v, key.token(t, map[string]any{"iss": "https://other.example"}), auth.ErrInvalidToken)
	wantVerify(t, v, "opaque", auth.ErrInvalidToken)
	if asked != 2 {
		t.Errorf("the other verifier was asked %d times, want 2", asked)
	}
}

const rsSecret = "0123456789abcdef0123456789abcdef"

func TestStatic(t *testing.T) {
	hash := sha256.Sum256([]byte("another-token-of-bob"))
	v, err := auth.NewStatic(
		auth.StaticToken{Token: rsSecret, Subject: "alice", Scopes: []string{"read"}},
		auth.StaticToken{SHA256: strings.ToUpper(hex.EncodeToString(hash[:])), Subject: "bob", ClientID: "ci"},
	)
	if err != nil {
		t.Fatal(err)
	}
	for token, want := range map[string]string{
		rsSecret: "static alice ", "another-token-of-bob": "static bob ci",
		"": "", rsSecret[1:]: "", rsSecret + "0": "", strings.ToUpper(rsSecret): "", hex.EncodeToString(hash[:]): "",
	} {
		p, err := v.Verify(t.Context(), token)
		if p.ID() != want || (want == "") != errors.Is(err, auth.ErrInvalidToken) {
			t.Errorf("Verify(%q) = %v, %v, want %q", token, p, err, want)
		}
	}
}

func TestStaticExpires(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		v, err := auth.NewStatic(auth.StaticToken{Token: rsSecret, Subject: "alice", Expires: time.Now().Add(time.Hour)})
		if err != nil {
			t.Fatal(err)
		}
		wantVerify(t, v, rsSecret, nil)
		<-time.After(time.Hour)
		wantVerify(t, v, rsSecret, auth.ErrInvalidToken)
	})
}

func TestStaticErrors(t *testing.T) {
	for name, tokens := range map[string][]auth.StaticToken{
		"none":       nil,
		"empty":      {{Subject: "alice"}},
		"both":       {{Subject: "alice", Token: rsSecret, SHA256: strings.Repeat("0", 64)}},
		"short":      {{Subject: "alice", Token: "geheim-geheim-g"}},
		"characters": {{Subject: "alice", Token: "geheim geheim geheim"}},
		"no hash":    {{Subject: "alice", SHA256: "geheim"}},
		"short hash": {{Subject: "alice", SHA256: "00"}},
		"no subject": {{Token: rsSecret}},
		"twice":      {{Subject: "alice", Token: rsSecret}, {Subject: "bob", Token: rsSecret}},
		"scope":      {{Subject: "alice", Token: rsSecret, Scopes: []string{"a b"}}},
	} {
		if _, err := auth.NewStatic(tokens...); err == nil || strings.Contains(err.Error(), "geheim") || strings.Contains(err.Error(), rsSecret) {
			t.Errorf("%s: %v, want an error without the token", name, err)
		}
	}
}

func ExampleNewStatic() {
	verifier, err := auth.NewStatic(auth.StaticToken{
		Token:   "f3a9c1d27e5b48069d1c",
		Subject: "ci",
		Scopes:  []string{"read"},
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	p, err := verifier.Verify(context.Background(), "f3a9c1d27e5b48069d1c")
	fmt.Println(p.Subject, p.HasScopes("read"), p.HasScopes("write"), err)
	// Output: ci true false <nil>
}
