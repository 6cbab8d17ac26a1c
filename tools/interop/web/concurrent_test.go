package web

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"

	"mcpwire/client"
	"mcpwire/internal/test/wait"
	"mcpwire/mcp"
	"mcpwire/oauth"
	"mcpwire/server"
)

// concurrently calls f in n goroutines and returns their errors.
func concurrently(n int, f func(i int) error) error {
	errs := make([]error, n)
	var wg sync.WaitGroup
	for i := range n {
		wg.Go(func() { errs[i] = f(i) })
	}
	wg.Wait()
	return errors.Join(errs...)
}

// TestManyCallers makes many concurrent calls that need a token, at first and after it was deleted.
// One of them gets it: the user logs in once, and a refresh token, which is valid once, is used
// once. The same applies to several transports, and to several processes that share a file.
func TestManyCallers(t *testing.T) {
	t.Parallel()
	o := withoutCache
	s := newSite(t, issuers.at(t, ""), formatOpaque, o)
	path := t.TempDir() + "/tokens.json"
	var processes []*siteUser
	for range 3 {
		processes = append(processes, newSiteUser(t, s, "alice", func(_ *siteUser, o *oauth.ClientOptions) {
			store, err := oauth.NewFileStore(path)
			if err != nil {
				t.Fatal(err)
			}
			o.Store = store
		}))
	}
	first := processes[0]
	clients := make([]*client.Client, 12)
	dial := func(v *siteUser, from, to int) {
		t.Helper()
		err := concurrently(to-from, func(i int) (err error) {
			clients[from+i], err = v.dial(eras[i%len(eras)].revision)
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	dial(first, 0, 4) // before the others, which would start their own logins
	dial(processes[1], 4, 8)
	dial(processes[2], 8, 12)
	count := func(kind string) (n int) {
		for _, v := range processes {
			n += v.grants(kind)
		}
		return n
	}
	for round := range 3 {
		err := concurrently(48, func(i int) error {
			got, err := client.CallTool[identity](t.Context(), clients[i%len(clients)], "whoami", nil)
			if err == nil && got.Subject != "alice" {
				err = fmt.Errorf("identity = %+v, want alice", got)
			}
			return err
		})
		if err != nil {
			t.Fatalf("round %d: %v", round, err)
		}
		if codes, refreshes := count("authorization_code"), count("refresh_token"); codes != 1 || refreshes != round {
			t.Fatalf("round %d: codes = %d, refreshes = %d, want 1 and %d", round, codes, refreshes, round)
		}
		s.issuer.remove(t, "token", first.token())
	}
}

// TestDeletedClient deletes the token and the registration of the client in the issuer. The client
// registers again.
func TestDeletedClient(t *testing.T) {
	t.Parallel()
	s := newSite(t, issuers.at(t, ""), formatOpaque, withoutCache)
	v := newSiteUser(t, s, "alice", nil)
	c := v.mustDial(mcp.LatestRevision)
	before := v.whoami(c)
	s.issuer.remove(t, "token", v.token())
	s.issuer.remove(t, "client", before.ClientID)
	if got := v.whoami(c); got.Subject != "alice" || got.ClientID == before.ClientID {
		t.Errorf("identity = %+v, want alice with another client id than %s", got, before.ClientID)
	}
	if n := v.registrations(); n != 2 {
		t.Errorf("registrations = %d, want 2", n)
	}
}

// TestSubscription keeps a subscription longer than its token is valid, which is one second. The
// site ends the stream, the client opens another one with the next token, and the subscription
// continues.
func TestSubscription(t *testing.T) {
	for _, era := range eras {
		t.Run(era.name, func(t *testing.T) {
			t.Parallel()
			s := newSite(t, issuers.at(t, ""), formatShort, siteOptions{})
			v := newSiteUser(t, s, "alice", nil)
			c := v.mustDial(era.revision)
			var notified atomic.Int64
			sub, err := c.ListenFunc(t.Context(), mcp.SubscriptionFilter{ToolsListChanged: true}, func(e client.Event) {
				if e.Kind == client.ToolsListChanged && !e.Missed {
					notified.Add(1)
				}
			})
			if err != nil {
				t.Fatalf("listen: %v", err)
			}
			defer sub.Close()
			wait.Until(t, "two refreshes", func() bool {
				v.whoami(c)
				return v.grants("refresh_token") >= 2
			})
			before := notified.Load()
			wait.Until(t, "notification of a change", func() bool {
				if err := server.AddTool(s.server, "extra", "Is added and removed.", noNotifications); err != nil {
					t.Fatal(err)
				}
				s.server.RemoveTools("extra")
				return notified.Load() > before
			})
			if err := sub.Err(); err != nil {
				t.Errorf("subscription: %v", err)
			}
			if n := len(v.logins()); n != 1 {
				t.Errorf("logins = %d, want 1", n)
			}
		})
	}
}

func noNotifications(context.Context, empty) (string, error) { return "", nil }
