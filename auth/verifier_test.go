package auth_test

import (
	"context"
	"errors"
	"testing"

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
		{"one says nothing", []auth.Verifier{nothing, no}, auth.ErrUnavailable},
	} {
		p, err := auth.AnyOf(tt.verifiers...).Verify(t.Context(), "x")
		if !errors.Is(err, tt.want) || (err == nil) != (p != nil) || tt.want == auth.ErrUnavailable && errors.Is(err, auth.ErrInvalidToken) {
			t.Errorf("%s: %v, %v, want %v", tt.name, p, err, tt.want)
		}
	}
}

// A token of an issuer whose keys are known is not shown to anybody else.
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
		t.Error("the token was shown to another verifier")
	}
	wantVerify(t, v, key.token(t, map[string]any{"iss": "https://other.example"}), auth.ErrInvalidToken)
	wantVerify(t, v, "opaque", auth.ErrInvalidToken)
	if asked != 2 {
		t.Errorf("the other verifier was asked %d times, want 2", asked)
	}
}
