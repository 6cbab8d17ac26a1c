package auth_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"mcpwire/auth"
)

func TestPrincipalID(t *testing.T) {
	texts := []string{"", " ", "a", "a b", "a%20b", "a%2520b", "%", "\x00", "é", "<b>", "\"", "\r\nX: y", "https://as.example/t"}
	seen := map[string][3]string{}
	for _, iss := range texts {
		for _, sub := range texts {
			for _, client := range texts {
				id := (&auth.Principal{Issuer: iss, Subject: sub, ClientID: client, Scopes: []string{"x"}}).ID()
				if other, ok := seen[id]; ok {
					t.Errorf("%q is the ID of %q and %q", id, other, [3]string{iss, sub, client})
				}
				seen[id] = [3]string{iss, sub, client}
				if strings.ContainsFunc(id, func(r rune) bool { return r < ' ' || r > '~' || strings.ContainsRune("<>\"\\&'", r) }) {
					t.Errorf("ID %q has characters that need escaping", id)
				}
			}
		}
	}
	p := &auth.Principal{Issuer: "https://as.example", Subject: "alice smith", ClientID: "app"}
	if got, want := p.ID(), "https://as.example alice%20smith app"; got != want {
		t.Errorf("ID = %q, want %q", got, want)
	}
	if got := (*auth.Principal)(nil).ID(); got != "" {
		t.Errorf("ID of nil = %q", got)
	}
}

// Spec: S215
func TestPrincipalIsNotLogged(t *testing.T) {
	p := &auth.Principal{Issuer: "i", Subject: "s", ClientID: "c", Claims: map[string]json.RawMessage{"email": json.RawMessage(`"private"`)}}
	var log bytes.Buffer
	slog.New(slog.NewTextHandler(&log, nil)).Info("request", "principal", p)
	slog.New(slog.NewJSONHandler(&log, nil)).Info("request", "principal", p)
	fmt.Fprintf(&log, "%v %s %+v", p, p, p)
	token := auth.StaticToken{Token: "email-of-somebody", Subject: "s"}
	slog.New(slog.NewJSONHandler(&log, nil)).Info("configured", "token", token)
	fmt.Fprintf(&log, "%v %+v", token, token)
	if got := log.String(); strings.Contains(got, "email") || strings.Count(got, "i s c") != 5 {
		t.Errorf("logged %s", got)
	}
}

func TestPrincipalOf(t *testing.T) {
	if p := auth.PrincipalOf(context.Background()); p != nil {
		t.Errorf("PrincipalOf an empty context = %v", p)
	}
	if p := auth.PrincipalOf(auth.WithPrincipal(context.Background(), nil)); p != nil {
		t.Errorf("PrincipalOf a context with nil = %v", p)
	}
}

func TestWithExpiry(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		base := context.Background()
		ctx, cancel := auth.WithExpiry(auth.WithPrincipal(base, &auth.Principal{Expires: time.Now().Add(time.Minute)}))
		defer cancel()
		<-time.After(time.Minute - time.Nanosecond)
		synctest.Wait()
		if err := ctx.Err(); err != nil {
			t.Errorf("ended early: %v", err)
		}
		<-time.After(time.Nanosecond)
		synctest.Wait()
		if err := context.Cause(ctx); !errors.Is(err, auth.ErrExpired) {
			t.Errorf("cause %v, want ErrExpired", err)
		}
		for _, c := range []context.Context{base, auth.WithPrincipal(base, &auth.Principal{})} {
			ctx, cancel := auth.WithExpiry(c)
			<-time.After(1000 * time.Hour)
			if ctx.Err() != nil {
				t.Errorf("ended without an expiry: %v", ctx.Err())
			}
			cancel()
			if ctx.Err() == nil {
				t.Error("cancel does nothing")
			}
		}
	})
}
