package web

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"

	"mcpwire/client"
	"mcpwire/mcp"
	"mcpwire/oauth"
	"mcpwire/server"
)

// atOnce calls f in several goroutines and returns what they returned.
func atOnce(n int, f func(i int) error) error {
	errs := make([]error, n)
	var wg sync.WaitGroup
	for i := range n {
		wg.Go(func() { errs[i] = f(i) })
	}
	wg.Wait()
	return errors.Join(errs...)
}

// TestManyCallers makes many concurrent calls that all need a token, initially and after it was
// lost. One of them gets it: the user logs in once, and a refresh token, which is valid once, is
// used once. The same applies to several transports, and to several processes that share a file.
func TestManyCallers(t *testing.T) {
	t.Parallel()
	o := withoutCache
	s := newSite(t, issuers.at(t, ""), formatOpaque, o)
	path := t.TempDir() + "/tokens.json"
	var processes []*visitor
	for range 3 {
		processes = append(processes, newVisitor(t, s, "alice", func(_ *visitor, o *oauth.ClientOptions) {
			store, err := oauth.NewFileStore(path)
			if err != nil {
				t.Fatal(err)
			}
			o.Store = store
		}))
	}
	first := processes[0]
	clients := make([]*client.Client, 12)
	dialed := func(v *visitor, from, to int) {
		t.Helper()
		err := atOnce(to-from, func(i int) (err error) {
			clients[from+i], err = v.dial(eras[i%len(eras)].revision)
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	dialed(first, 0, 4) // the others wait, since nobody would know of several logins
	dialed(processes[1], 4, 8)
	dialed(processes[2], 8, 12)
	count := func(kind string) (n int) {
		for _, v := range processes {
			n += v.grants(kind)
		}
		return n
	}
	for round := range 3 {
		err := atOnce(48, func(i int) error {
			got, err := client.CallTool[identity](t.Context(), clients[i%len(clients)], "whoami", nil)
			if err == nil && got.Subject != "alice" {
				err = fmt.Errorf("the site takes the caller for %+v", got)
			}
			return err
		})
		if err != nil {
			t.Fatalf("round %d: %v", round, err)
		}
		if codes, refreshes := count("authorization_code"), count("refresh_token"); codes != 1 || refreshes != round {
			t.Fatalf("round %d: %d codes and %d refresh tokens were used, want 1 and %d", round, codes, refreshes, round)
		}
		s.issuer.lose(t, "token", first.token())
	}
}

// TestForgottenClient has an issuer that has lost the token and the registration of the client,
// which registers again.
func TestForgottenClient(t *testing.T) {
	t.Parallel()
	s := newSite(t, issuers.at(t, ""), formatOpaque, withoutCache)
	v := newVisitor(t, s, "alice", nil)
	c := v.mustDial(mcp.LatestRevision)
	before := v.whoami(c)
	s.issuer.lose(t, "token", v.token())
	s.issuer.lose(t, "client", before.ClientID)
	if got := v.whoami(c); got.Subject != "alice" || got.ClientID == before.ClientID {
		t.Errorf("the site takes the caller for %+v, and before for %+v", got, before)
	}
	if n := v.registrations(); n != 2 {
		t.Errorf("the client registered %d times, want twice", n)
	}
}

// TestSubscription has a stream that outlives its token, which is valid for a second: the site ends
// the stream, the client opens another one with the next token, and the subscription continues.
func TestSubscription(t *testing.T) {
	for _, era := range eras {
		t.Run(era.name, func(t *testing.T) {
			t.Parallel()
			s := newSite(t, issuers.at(t, ""), formatShort, siteOptions{})
			v := newVisitor(t, s, "alice", nil)
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
			eventually(t, "two refreshes", func() bool {
				v.whoami(c)
				return v.grants("refresh_token") >= 2
			})
			before := notified.Load()
			eventually(t, "news of a change", func() bool {
				if err := server.AddTool(s.server, "news", "Is new.", noNotifications); err != nil {
					t.Fatal(err)
				}
				s.server.RemoveTools("news")
				return notified.Load() > before
			})
			if err := sub.Err(); err != nil {
				t.Errorf("the subscription has ended: %v", err)
			}
			if n := len(v.asked()); n != 1 {
				t.Errorf("the user was asked %d times, want once", n)
			}
		})
	}
}

func noNotifications(context.Context, empty) (string, error) { return "", nil }
