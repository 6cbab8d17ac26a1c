package client

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"mcpwire/jsonrpc"
	"mcpwire/mcp"
)

func TestCacheEvicts(t *testing.T) {
	later := time.Now().Add(time.Hour)
	key := func(name string) cacheKey { return cacheKey{"m", name} }
	one := (&cacheEntry{key: key("a"), result: make([]byte, 100)}).size()
	c := NewCache(3 * one)
	has := func() (names string) {
		for _, name := range strings.Split("a b c d big", " ") {
			if _, ok := c.entries[key(name)]; ok {
				names += name
			}
		}
		return names
	}
	for _, step := range []struct {
		do   func()
		want string
	}{
		{func() { c.put(key("a"), 0, make([]byte, 100), later) }, "a"},
		{func() { c.put(key("b"), 0, make([]byte, 100), later) }, "ab"},
		{func() { c.put(key("c"), 0, make([]byte, 100), later) }, "abc"},
		{func() { c.get(key("a")) }, "abc"},
		// b was unused for longest
		{func() { c.put(key("d"), 0, make([]byte, 100), later) }, "acd"},
		// one byte too many after the replacement
		{func() { c.put(key("c"), 0, make([]byte, 101), later) }, "cd"},
		// larger than the cache
		{func() { c.put(key("big"), 0, make([]byte, 3*one), later) }, "cd"},
		// the replaced entry is invalid
		{func() { c.put(key("c"), 0, make([]byte, 3*one), later) }, "d"},
		{func() { c.invalidate("m", func(params string) bool { return params == "x" }) }, "d"},
		{func() { c.put(key("a"), 0, nil, later) }, "d"}, // requested before the drop
		{func() { c.put(key("a"), c.generation("m"), nil, later) }, "ad"},
		{func() { c.invalidate("m", func(params string) bool { return params == "a" }) }, "d"},
		{func() { c.invalidate("n", nil) }, "d"},
		{func() { c.invalidate("m", nil) }, ""},
	} {
		if step.do(); has() != step.want {
			t.Fatalf("entries: got %q, want %q", has(), step.want)
		}
		bytes := 0
		for el := c.lru.Front(); el != nil; el = el.Next() {
			bytes += el.Value.(*cacheEntry).size()
		}
		if bytes != c.bytes || c.lru.Len() != len(c.entries) || bytes > c.maxBytes {
			t.Fatalf("bytes: counted %d, there are %d; list of %d, map of %d", c.bytes, bytes, c.lru.Len(), len(c.entries))
		}
	}
}

func TestCacheHints(t *testing.T) {
	for _, tt := range []struct {
		result string
		ttl    time.Duration
		public bool
	}{
		{`{}`, 0, false},
		{`{"ttlMs":0,"cacheScope":"public"}`, 0, true},
		{`{"cacheScope":"pu\u0062lic","ttlMs":1500}`, 1500 * time.Millisecond, true},
		{`{"ttlMs":1000}`, time.Second, false},
		{`{"ttlMs":1000,"cacheScope":"private"}`, time.Second, false},
		{`{"ttlMs":1000,"cacheScope":"Public"}`, time.Second, false},
		{`{"ttlMs":1000,"cacheScope":["public"]}`, time.Second, false},
		{`{"ttlMs":-1}`, 0, false},
		{`{"ttlMs":"1000"}`, 0, false},
		{`{"ttlMs":1.5}`, 0, false},
		{`{"ttlMs":9223372036854775807}`, maxTTL, false},
		{`{"ttlMs":-9223372036854775808}`, 0, false},
		{`{"ttlMs":1e400}`, 0, false},
	} {
		if ttl, public := cacheHints([]byte(tt.result)); ttl != tt.ttl || public != tt.public {
			t.Errorf("%s: got %v, %t, want %v, %t", tt.result, ttl, public, tt.ttl, tt.public)
		}
	}
}

func TestRelated(t *testing.T) {
	for _, tt := range []struct {
		a, b string
		want bool
	}{
		{"file:///a", "file:///a", true},
		{"file:///a", "file:///a/b", true},
		{"file:///a/", "file:///a/b", true},
		{"file:///a", "file:///ab", false},
		{"x:a", "x:a?page=2", true},
		{"x:a", "x:a#part", true},
		{"file:///a/b", "file:///a/c", false},
		{"", "file:///a", false},
	} {
		if overlaps(tt.a, tt.b) != tt.want || overlaps(tt.b, tt.a) != tt.want {
			t.Errorf("related(%q, %q) is not %t both ways", tt.a, tt.b, tt.want)
		}
	}
}

// resource is a ReadResourceResult with a text.
func resource(text, more string) string {
	return fmt.Sprintf(`{"resultType":"complete","contents":[{"uri":"x:a","text":%q}]%s}`, text, more)
}

// numbered returns an answerer that responds with the number of the request, and more members.
func numbered(more string) answerer {
	n := 0
	return func(context.Context, string) (string, error) {
		n++
		return resource(fmt.Sprint(n), more), nil
	}
}

// read returns the text of a resource.
func read(t *testing.T, c *Client, uri string, opts ...CallOption) string {
	t.Helper()
	r, err := c.ReadResource(t.Context(), uri, opts...)
	if err != nil {
		t.Fatal(err)
	}
	return r.Contents[0].Text
}

// Spec: C76
func TestCacheFresh(t *testing.T) {
	for _, tt := range []struct {
		name, revision, more string
		opts                 Options
		// what is read at once; after 999 ms; for another resource; with WithoutCache; with
		// WithMeta; after 1 s more
		want string
	}{
		{"private", modernDate, `,"ttlMs":1000,"cacheScope":"private"`, Options{}, "1 1 2 3 4 5"},
		{"public", modernDate, `,"ttlMs":1000,"cacheScope":"public"`, Options{}, "1 1 2 3 4 5"},
		{"no scope", modernDate, `,"ttlMs":1000`, Options{}, "1 1 2 3 4 5"},
		{"public, in a store", modernDate, `,"ttlMs":1000,"cacheScope":"public"`, Options{Cache: CacheOptions{Shared: NewCache(0)}}, "1 1 2 3 4 5"},
		{"stale at once", modernDate, `,"ttlMs":0,"cacheScope":"public"`, Options{}, "1 2 3 4 5 6"},
		{"negative", modernDate, `,"ttlMs":-5,"cacheScope":"public"`, Options{}, "1 2 3 4 5 6"},
		{"no ttlMs", modernDate, `,"cacheScope":"public"`, Options{}, "1 2 3 4 5 6"},
		{"cache too small", modernDate, `,"ttlMs":1000,"cacheScope":"private"`, Options{Cache: CacheOptions{MaxBytes: 10}}, "1 2 3 4 5 6"},
		{"cache disabled", modernDate, `,"ttlMs":1000,"cacheScope":"private"`, Options{Cache: CacheOptions{MaxBytes: -1}}, "1 2 3 4 5 6"},
		{"legacy", legacyDate, `,"ttlMs":1000,"cacheScope":"public"`, Options{Cache: CacheOptions{Shared: NewCache(0)}}, "1 2 3 4 5 6"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := newFake(t, tt.revision, `{"resources":{}}`, map[string]answerer{"resources/read": numbered(tt.more)})
				c := s.dial(&tt.opts)
				got := []string{read(t, c, "x:a")}
				elapse(999 * time.Millisecond)
				got = append(got, read(t, c, "x:a"), read(t, c, "x:b"), read(t, c, "x:a", WithoutCache()), read(t, c, "x:a", WithMeta("com.example/k", 1)))
				elapse(time.Second)
				got = append(got, read(t, c, "x:a"))
				if diff := cmp.Diff(tt.want, strings.Join(got, " ")); diff != "" {
					t.Errorf("(-want +got):\n%s", diff)
				}
			})
		})
	}
}

func TestCacheKeepsFresh(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newFake(t, modernDate, `{}`, map[string]answerer{"resources/read": numbered(`,"ttlMs":1000,"cacheScope":"private"`)})
		c := s.dial(nil)
		r, err := c.ReadResource(t.Context(), "x:a")
		if err != nil {
			t.Fatal(err)
		}
		r.Contents[0].Text = "mine"
		r.Contents[0].Extra = append(r.Contents[0].Extra, "changed"...)
		if got := read(t, c, "x:a", WithoutCache()); got != "2" {
			t.Errorf("with WithoutCache: got %q", got)
		}
		if got := read(t, c, "x:a"); got != "2" {
			t.Errorf("after WithoutCache: got %q, want its result", got)
		}
	})
}

// Spec: C78
func TestCacheIsShared(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var users []*Client
		store := NewCache(0)
		for _, user := range []string{"alice", "bob"} {
			s := newFake(t, modernDate, `{}`, map[string]answerer{"resources/read": func(_ context.Context, params string) (string, error) {
				scope := "private"
				if parseURIParam([]byte(params)) == "x:public" {
					scope = "public"
				}
				return resource(user, `,"ttlMs":1000,"cacheScope":"`+scope+`"`), nil
			}})
			users = append(users, s.dial(&Options{Cache: CacheOptions{Shared: store}}))
		}
		alice, bob := users[0], users[1]
		for _, step := range []struct {
			c         *Client
			uri, want string
		}{
			{alice, "x:private", "alice"}, {alice, "x:public", "alice"},
			{bob, "x:private", "bob"}, {bob, "x:public", "alice"},
			{alice, "x:private", "alice"},
		} {
			if got := read(t, step.c, step.uri); got != step.want {
				t.Errorf("%s: got that of %s, want that of %s", step.uri, got, step.want)
			}
		}
		alice.ForgetCached()
		if got := read(t, bob, "x:private"); got != "bob" {
			t.Errorf("after another's ForgetCached: got that of %s", got)
		}
	})
}

// Spec: C77
func TestCacheNotAfterInput(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := 0
		s := newFake(t, modernDate, `{}`, map[string]answerer{"resources/read": func(_ context.Context, params string) (string, error) {
			if !strings.Contains(params, "inputResponses") {
				return `{"resultType":"input_required","inputRequests":{"k":{"method":"roots/list"}},"ttlMs":1000}`, nil
			}
			n++
			return resource(fmt.Sprint(n), `,"ttlMs":1000,"cacheScope":"public"`), nil
		}})
		c := s.dial(&Options{Input: InputOptions{Roots: func(context.Context) ([]mcp.Root, error) { return nil, nil }}})
		if got := read(t, c, "x:a") + read(t, c, "x:a"); got != "12" {
			t.Errorf("got %q, want each read to be asked", got)
		}
	})
}

func TestCacheExpires(t *testing.T) {
	for _, tt := range []struct {
		name, method, params string
		stale                map[string]bool
	}{
		{"tools", "notifications/tools/list_changed", "{}", map[string]bool{"tools/list": true}},
		{"prompts", "notifications/prompts/list_changed", "", map[string]bool{"prompts/list": true}},
		{"resources", "notifications/resources/list_changed", "", map[string]bool{"resources/list": true, "resources/templates/list": true}},
		{"a resource", "notifications/resources/updated", `{"uri":"x:a"}`, map[string]bool{"resources/read": true}},
		{"a part of it", "notifications/resources/updated", `{"uri":"x:a#1"}`, map[string]bool{"resources/read": true}},
		{"another resource", "notifications/resources/updated", `{"uri":"x:b"}`, nil},
		{"another notification", "notifications/x", `{}`, nil},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				hints := `,"ttlMs":100000,"cacheScope":"private"}`
				s := newFake(t, modernDate, `{}`, map[string]answerer{
					"tools/list":               says(`{"resultType":"complete","tools":[]` + hints),
					"prompts/list":             says(`{"resultType":"complete","prompts":[]` + hints),
					"resources/list":           says(`{"resultType":"complete","resources":[]` + hints),
					"resources/templates/list": says(`{"resultType":"complete","resourceTemplates":[]` + hints),
					"resources/read":           says(resource("text", hints[:len(hints)-1])),
					"server/discover":          says(`{"resultType":"complete","supportedVersions":["2026-07-28"],"capabilities":{}` + hints),
				})
				c := s.dial(nil)
				all := func() {
					t.Helper()
					for _, list := range []func() error{
						func() error { _, err := c.ListTools(t.Context(), nil); return err },
						func() error { _, err := c.ListPrompts(t.Context(), nil); return err },
						func() error { _, err := c.ListResources(t.Context(), nil); return err },
						func() error { _, err := c.ListResourceTemplates(t.Context(), nil); return err },
						func() error { _, err := c.ReadResource(t.Context(), "x:a"); return err },
						func() error { _, err := c.Discover(t.Context()); return err },
					} {
						if err := list(); err != nil {
							t.Fatal(err)
						}
					}
				}
				all()
				s.takeSeen()
				all()
				if seen := s.takeSeen(); seen != nil {
					t.Fatalf("asked again: %q", seen)
				}
				s.notify(tt.method, tt.params)
				synctest.Wait()
				all()
				asked := map[string]bool{}
				for _, line := range s.takeSeen() {
					method, _, _ := strings.Cut(line, " ")
					asked[method] = true
				}
				if tt.stale == nil {
					tt.stale = map[string]bool{}
				}
				if diff := cmp.Diff(tt.stale, asked); diff != "" {
					t.Errorf("asked again (-want +got):\n%s", diff)
				}
			})
		})
	}
}

func TestCacheExpiresDuringRequest(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		old := make(chan struct{})
		s := newFake(t, modernDate, `{}`, map[string]answerer{"resources/read": inTurn(
			func(context.Context, string) (string, error) {
				<-old // the response is read before the change, and sent after its notification
				return resource("old", `,"ttlMs":1000,"cacheScope":"private"`), nil
			},
			says(resource("new", `,"ttlMs":1000,"cacheScope":"private"`)),
		)})
		c := s.dial(nil)
		got := make(chan string)
		go func() { got <- read(t, c, "x:a") }()
		synctest.Wait()
		s.notify("notifications/resources/updated", `{"uri":"x:a"}`)
		close(old)
		if text := <-got; text != "old" {
			t.Errorf("first: got %q", text)
		}
		if text := read(t, c, "x:a"); text != "new" {
			t.Errorf("got %q, want a response that was stale on arrival not to be cached", text)
		}
	})
}

func TestCacheIsNotThatOfTheNextServer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newFake(t, modernDate, `{}`, map[string]answerer{"resources/read": numbered(`,"ttlMs":1000000,"cacheScope":"private"`)})
		c := s.dial(nil)
		read(t, c, "x:a")
		s.crash()
		synctest.Wait()
		elapse(10 * time.Second) // the client has reconnected
		if got := read(t, c, "x:a"); got != "2" {
			t.Errorf("after a reconnect: got %q", got)
		}
	})
}

func TestCacheStaleIfError(t *testing.T) {
	for _, tt := range []struct {
		name   string
		opts   Options
		second answerer
		wait   time.Duration
		want   string
		call   []CallOption
	}{
		{"StaleIfError not set", Options{}, nil, 2 * time.Second, "error", nil},
		{"unreachable", Options{Cache: CacheOptions{StaleIfError: time.Minute}}, nil, 2 * time.Second, "old", nil},
		{"unreachable, with WithoutCache", Options{Cache: CacheOptions{StaleIfError: time.Minute}}, nil, 2 * time.Second, "error", []CallOption{WithoutCache()}},
		{"expired for too long", Options{Cache: CacheOptions{StaleIfError: time.Minute}}, nil, 62 * time.Second, "error", nil},
		{"the server responds with an error", Options{Cache: CacheOptions{StaleIfError: time.Minute}}, fails(jsonrpc.CodeInvalidParams), 2 * time.Second, "error", nil},
		{"the server responds with a new value", Options{Cache: CacheOptions{StaleIfError: time.Minute}}, says(resource("new", "")), 2 * time.Second, "new", nil},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := newFake(t, modernDate, `{}`, map[string]answerer{
					"resources/read": inTurn(says(resource("old", `,"ttlMs":1000,"cacheScope":"private"`)), tt.second),
				})
				if tt.second == nil { // never responds
					s.answers["resources/read"] = inTurn(says(resource("old", `,"ttlMs":1000,"cacheScope":"private"`)),
						func(ctx context.Context, _ string) (string, error) { <-ctx.Done(); return "", ctx.Err() })
				}
				c := s.dial(&tt.opts)
				read(t, c, "x:a")
				elapse(tt.wait)
				got := "error"
				if r, err := c.ReadResource(t.Context(), "x:a", append(tt.call, WithTimeout(time.Millisecond))...); err == nil {
					got = r.Contents[0].Text
				}
				if got != tt.want {
					t.Errorf("got %s, want %s", got, tt.want)
				}
			})
		})
	}
}

func TestMalformedIsNotCached(t *testing.T) {
	s := newFake(t, modernDate, `{}`, map[string]answerer{"resources/read": inTurn(
		says(`{"resultType":"complete","contents":7,"ttlMs":100000}`),
		says(`{"resultType":"task","contents":[],"ttlMs":100000}`),
		says(resource("good", "")),
	)})
	c := s.dial(&Options{Tasks: true})
	for range 2 {
		_, err := c.ReadResource(t.Context(), "x:a")
		if _, ok := err.(*ProtocolError); !ok {
			t.Errorf("got error %v, want a ProtocolError", err)
		}
	}
	if got := read(t, c, "x:a"); got != "good" {
		t.Errorf("got %q", got)
	}
}
