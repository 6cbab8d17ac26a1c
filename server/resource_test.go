package server_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"testing/fstest"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"mcpwire/internal/json/jsonwire"
	"mcpwire/jsonrpc"
	"mcpwire/mcp"
	"mcpwire/server"
)

// read reads a resource and returns the first text in it.
func (c *client) read(uri string) (string, error) {
	c.t.Helper()
	result, err := c.call(context.Background(), "resources/read", fmt.Sprintf(`{"uri":%q}`, uri))
	if err != nil {
		return "", err
	}
	var r mcp.ReadResourceResult
	if err := json.Unmarshal([]byte(result), &r); err != nil || len(r.Contents) == 0 {
		c.t.Fatalf("%v: %s", err, result)
	}
	return r.Contents[0].Text, nil
}

// Spec: S144 S146
func TestResourceURIs(t *testing.T) {
	const noScheme, escape = "it must be a URI that begins with a scheme, as file:///a does", "must be percent-encoded"
	for _, tt := range []struct{ uri, want string }{
		{"file:///a", ""},
		{"file:///a%20b", ""},
		{"custom+1.0-x:anything/at?all=1#here", ""},
		{"http://user@[::1]:8080/a", ""},
		{"http://[::1]", ""},
		{"urn:isbn:0451450523", ""},
		{"a:", ""},
		{"data:,x", ""},
		{"", noScheme},
		{":", noScheme},
		{"file", noScheme},
		{"/a/b", noScheme},
		{"//host/a", noScheme},
		{"1a:b", noScheme},
		{"a b:c", noScheme},
		{"é:c", noScheme},
		{"a_b:c", noScheme},
		{"a:b c", `" " ` + escape},
		{"a:é", `"é" ` + escape},
		{"a:\xff", `"�" ` + escape},
		{"a:\n", `"\n" ` + escape},
		{"a:%", `"%" ` + escape},
		{"a:%4", `"%" ` + escape},
		{"a:%4g", `"%" ` + escape},
		{"a:[b]", `"[" ` + escape},
		{"a://b/[c]", `"[" ` + escape},
		{"a://b?[", `"[" ` + escape},
		{"a:#b#c", `"#" ` + escape},
		{`a:\b`, `"\\" ` + escape},
		{"a:{b}", `"{" ` + escape},
	} {
		srv := server.MustNew("test", "1", nil)
		err := server.AddResource(srv, mcp.Resource{URI: tt.uri, Name: "n"}, server.Static(""))
		switch {
		case tt.want == "" && err != nil:
			t.Errorf("%q: %v", tt.uri, err)
		case tt.want != "" && (err == nil || !strings.HasPrefix(err.Error(), fmt.Sprintf("resource %q: ", tt.uri)) || !strings.HasSuffix(err.Error(), tt.want)):
			t.Errorf("%q: got %v, want an error that ends in: %s", tt.uri, err, tt.want)
		}
	}
}

func TestResourceRegistrationErrors(t *testing.T) {
	srv := server.MustNew("test", "1", nil)
	good := mcp.Resource{URI: "a:b", Name: "n"}
	must(t, server.AddResource(srv, good, server.Static("x")))
	if err := server.AddResource(srv, good, server.Static("x")); !errors.Is(err, server.ErrDuplicate) {
		t.Errorf("twice: %v", err)
	}
	half, much := 0.5, 1.5
	for _, tt := range []struct {
		name string
		def  mcp.Resource
		want string
	}{
		{"no name", mcp.Resource{URI: "c:d"}, `resource "c:d": it needs a name`},
		{"priority", mcp.Resource{URI: "c:d", Name: "n", Annotations: &mcp.Annotations{Priority: &much}}, `resource "c:d": annotations: priority 1.5 is not from 0 to 1`},
		{"meta", mcp.Resource{URI: "c:d", Name: "n", Meta: json.RawMessage("[]")}, `resource "c:d": _meta must be a JSON object`},
		{"extra", mcp.Resource{URI: "c:d", Name: "n", Extra: json.RawMessage("[]")}, `resource "c:d": Extra must be a JSON object`},
	} {
		if err := server.AddResource(srv, tt.def, server.Static("x")); err == nil || err.Error() != tt.want {
			t.Errorf("%s: got %v, want %s", tt.name, err, tt.want)
		}
		template := mcp.ResourceTemplate{URITemplate: "c:d", Name: tt.def.Name, Annotations: tt.def.Annotations, Meta: tt.def.Meta, Extra: tt.def.Extra}
		err := server.AddResourceTemplate(srv, template, func(context.Context, server.Vars) (string, error) { return "", nil })
		if want := strings.Replace(tt.want, "resource", "resource template", 1); err == nil || err.Error() != want {
			t.Errorf("%s of a template: got %v, want %s", tt.name, err, want)
		}
	}
	if err := server.AddResource[string](srv, mcp.Resource{URI: "c:d", Name: "n"}, nil); err == nil || !strings.Contains(err.Error(), "it needs a function") {
		t.Errorf("no function: %v", err)
	}
	must(t, server.AddResource(srv, mcp.Resource{URI: "c:d", Name: "n", Annotations: &mcp.Annotations{Priority: &half}}, server.Static("x")))
}

// TestResourceDefinitionIsCopied shows that later changes to a definition by the caller have no
// effect.
func TestResourceDefinitionIsCopied(t *testing.T) {
	srv := server.MustNew("test", "1", nil)
	half, size := 0.5, int64(1)
	def := mcp.Resource{
		URI: "a:b", Name: "n", Size: &size, Icons: []mcp.Icon{{Src: "data:,"}}, Annotations: &mcp.Annotations{Priority: &half}, Meta: json.RawMessage(`{"a":1}`),
	}
	template := mcp.ResourceTemplate{URITemplate: "a:b{x}", Name: "n", Icons: def.Icons, Annotations: def.Annotations, Meta: def.Meta}
	prompt := mcp.Prompt{Name: "n", Arguments: []mcp.PromptArgument{{Name: "a"}}, Icons: def.Icons, Meta: def.Meta}
	must(t, server.AddResource(srv, def, server.Static("x")),
		server.AddResourceTemplate(srv, template, func(context.Context, server.Vars) (string, error) { return "", nil }),
		server.AddPrompt(srv, prompt, func(context.Context, map[string]string) (string, error) { return "", nil }))
	size, def.Icons[0].Src, def.Annotations.Priority, def.Meta[2], prompt.Arguments[0].Name = 2, "https://x", new(1.0), 'z', "z"
	c := connect(t, srv, modern)
	for _, method := range []string{"resources/list", "resources/templates/list", "prompts/list"} {
		got := c.must(method, "{}")
		for _, changed := range []string{`"size":2`, "https://x", `"priority":1`, `"z"`} {
			if strings.Contains(got, changed) {
				t.Errorf("%s has %s: %s", method, changed, got)
			}
		}
	}
}

// viewed returns a server with a View that depends on the scopes of the principal.
func viewed(t *testing.T) (*server.Server, func(scopes ...string) *client) {
	t.Helper()
	srv := server.MustNew("test", "1", &server.Options{View: func(ctx context.Context, _ string) *server.View {
		return server.NewView(func(kind server.Kind, name string) bool {
			for _, s := range scopesOf(ctx) {
				if s == string(kind)+" "+name {
					return true
				}
			}
			return false
		})
	}})
	return srv, func(scopes ...string) *client {
		return connectIn(asUser(scopes...), t, srv, modern)
	}
}

// asUser returns a context for requests of a user with the scopes.
func asUser(scopes ...string) context.Context {
	return context.WithValue(server.WithPrincipalID(context.Background(), "someone"), scopesKey{}, scopes)
}

type scopesKey struct{}

func scopesOf(ctx context.Context) []string {
	scopes, _ := ctx.Value(scopesKey{}).([]string)
	return scopes
}

// Spec: S120 S121
func TestResourceViews(t *testing.T) {
	srv, as := viewed(t)
	text := func(s string) func(context.Context, server.Vars) (string, error) {
		return func(context.Context, server.Vars) (string, error) { return s, nil }
	}
	must(t,
		server.AddResource(srv, mcp.Resource{URI: "a:secret", Name: "n"}, server.Static("static")),
		server.AddResourceTemplate(srv, mcp.ResourceTemplate{URITemplate: "a:{x}", Name: "n"}, text("wide")),
		server.AddResourceTemplate(srv, mcp.ResourceTemplate{URITemplate: "a:b{x}", Name: "n"}, text("narrow")),
	)
	all := []string{"resource a:secret", "resource template a:{x}", "resource template a:b{x}"}
	for _, tt := range []struct {
		name   string
		scopes []string
		want   map[string]string // by URI; empty for not found
	}{
		{"everything", all, map[string]string{"a:secret": "static", "a:z": "wide", "a:bz": "narrow"}},
		{"nothing", nil, map[string]string{"a:secret": "", "a:z": "", "a:bz": ""}},
		{"a hidden resource is not shown by a wider template", all[1:2], map[string]string{"a:secret": "", "a:z": "wide", "a:bz": ""}},
		{"the narrow template", all[2:], map[string]string{"a:secret": "", "a:z": "", "a:bz": "narrow"}},
		{"the static resource", all[:1], map[string]string{"a:secret": "static", "a:z": "", "a:bz": ""}},
	} {
		c := as(tt.scopes...)
		for uri, want := range tt.want {
			got, err := c.read(uri)
			if got != want || (want == "") != (code(err) == jsonrpc.CodeInvalidParams) {
				t.Errorf("%s: %s is %q, %v; want %q", tt.name, uri, got, err, want)
			}
		}
		listed := append(names(t, c.must("resources/list", "{}"), "resources", "uri"), names(t, c.must("resources/templates/list", "{}"), "resourceTemplates", "uriTemplate")...)
		if len(listed) != len(tt.scopes) {
			t.Errorf("%s: %q are listed", tt.name, listed)
		}
	}
}

// TestViewsAndSpelling checks that a hidden resource stays hidden in every spelling of its URI, and
// that no other template matches it instead.
//
// Spec: S120
func TestViewsAndSpelling(t *testing.T) {
	srv, as := viewed(t)
	wide := func(_ context.Context, v server.Vars) (string, error) { return "wide " + v.Get("x"), nil }
	must(t,
		server.AddResource(srv, mcp.Resource{URI: "a:secret", Name: "n"}, server.Static("static")),
		server.AddResource(srv, mcp.Resource{URI: "a:%6fdd%2fone", Name: "n"}, server.Static("odd")),
		server.AddResourceTemplate(srv, mcp.ResourceTemplate{URITemplate: "a:{x}", Name: "n"}, wide),
		server.AddResourceTemplate(srv, mcp.ResourceTemplate{URITemplate: "a:b{x}", Name: "n"}, func(_ context.Context, v server.Vars) (string, error) { return "narrow " + v.Get("x"), nil }),
	)
	few, all := as("resource template a:{x}"), as("resource template a:{x}", "resource template a:b{x}", "resource a:secret", "resource a:%6fdd%2fone")
	for uri, want := range map[string]string{
		"a:secret": "static", "a:%73ecret": "static", "a:%73e%63ret": "static", "a:%6fdd%2fone": "odd", "a:odd%2Fone": "odd", "a:%6Fdd%2fone": "odd",
		"a:bz": "narrow z", "a:%62z": "narrow z", "a:%62%7A": "narrow z",
	} {
		if got, err := few.read(uri); code(err) != jsonrpc.CodeInvalidParams {
			t.Errorf("%s is hidden, got %q, %v", uri, got, err)
		}
		if got, err := all.read(uri); got != want {
			t.Errorf("%s is %q, %v; want %q", uri, got, err, want)
		}
	}
	if got, err := few.read("a:%73ecre%2Ft"); got != "wide secre/t" {
		t.Errorf("a resource of one template only: %q, %v", got, err)
	}
}

// TestHiddenResourcesAreNotWatched shows that clients get no notifications about hidden resources,
// in either era.
func TestHiddenResourcesAreNotWatched(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		srv, as := viewed(t)
		must(t, server.AddResource(srv, mcp.Resource{URI: "a:secret", Name: "n"}, server.Static("")), server.AddResource(srv, mcp.Resource{URI: "a:open", Name: "n"}, server.Static("")))
		c := as("resource a:open")
		c.listen(t.Context(), `{"notifications":{"resourceSubscriptions":["a:secret","a:open"]}}`)
		srv.ResourceUpdated("a:secret")
		synctest.Wait()
		want := []string{`1 × notifications/subscriptions/acknowledged {"_meta":{"io.modelcontextprotocol/subscriptionId":1},"notifications":{"resourceSubscriptions":["a:open"]}}`}
		if diff := cmp.Diff(want, counted(c.takeNotes())); diff != "" {
			t.Errorf("notifications (-want +got):\n%s", diff)
		}
	})
}

// Spec: S116 S117 S119
func TestReadHints(t *testing.T) {
	srv := server.MustNew("test", "1", &server.Options{Cache: server.CacheOptions{ReadTTL: time.Minute, ReadPublic: true}})
	negative := int64(-1)
	must(t,
		server.AddResource(srv, mcp.Resource{URI: "a:default", Name: "n"}, server.Static("")),
		server.AddResource(srv, mcp.Resource{URI: "a:ttl", Name: "n"}, server.Static(server.CacheFor("", time.Second, ""))),
		server.AddResource(srv, mcp.Resource{URI: "a:private", Name: "n"}, server.Static(server.CacheFor("", time.Second, mcp.CacheScopePrivate))),
		server.AddResource(srv, mcp.Resource{URI: "a:negative", Name: "n"}, server.Static(&mcp.ReadResourceResult{Contents: []mcp.ResourceContents{{}}, TTLMs: &negative})),
		server.AddResource(srv, mcp.Resource{URI: "a:nil", Name: "n"}, server.Static(server.CacheFor[*mcp.ReadResourceResult](nil, time.Hour, ""))),
	)
	c := connect(t, srv, modern)
	for uri, want := range map[string]string{
		"a:default": `"ttlMs":60000,"cacheScope":"public"`, "a:ttl": `"ttlMs":1000,"cacheScope":"public"`, "a:private": `"ttlMs":1000,"cacheScope":"private"`,
		"a:negative": `"ttlMs":0,"cacheScope":"public"`,
	} {
		if got := c.must("resources/read", `{"uri":"`+uri+`"}`); !strings.Contains(got, want) {
			t.Errorf("%s: got %s, want %s", uri, got, want)
		}
	}
	if _, err := c.read("a:nil"); code(err) != jsonrpc.CodeInvalidParams {
		t.Errorf("nothing that is kept: %v", err)
	}
}

// TestReadErrors checks the errors that clients get for those of a resource's function.
func TestReadErrors(t *testing.T) {
	srv := server.MustNew("test", "1", &server.Options{Limits: server.Limits{HandlerTimeout: time.Minute}})
	fails := map[string]error{
		"a:gone": server.ErrNotFound, "a:wrapped": fmt.Errorf("x: %w", server.ErrNotFound), "a:fs": &fs.PathError{Op: "open", Path: "/secret", Err: fs.ErrNotExist},
		"a:other": fs.ErrPermission, "a:own": jsonrpc.Errorf(7, "mine"), "a:both": errors.Join(jsonrpc.Errorf(7, "mine"), server.ErrNotFound),
	}
	for uri, err := range fails {
		must(t, server.AddResource(srv, mcp.Resource{URI: uri, Name: "n"}, func(context.Context) (string, error) { return "", err }))
	}
	for _, revision := range append(legacyRevisions(), modern) {
		c := connect(t, srv, revision)
		missing := jsonrpc.CodeInvalidParams
		if revision != modern {
			missing = mcp.CodeResourceNotFound
		}
		for uri, want := range map[string]jsonrpc.Code{"a:gone": missing, "a:wrapped": missing, "a:fs": missing, "a:other": jsonrpc.CodeInternalError, "a:own": 7, "a:both": 7} {
			_, err := c.read(uri)
			if code(err) != want || strings.Contains(err.Error(), "secret") {
				t.Errorf("%s in %s: got %v, want code %d", uri, revision, err, want)
			}
		}
	}
}

func TestReadTimeout(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		srv := server.MustNew("test", "1", &server.Options{Limits: server.Limits{HandlerTimeout: time.Minute}})
		must(t, server.AddResource(srv, mcp.Resource{URI: "a:slow", Name: "n"}, func(ctx context.Context) (string, error) {
			<-ctx.Done()
			return "", ctx.Err()
		}))
		began := time.Now()
		_, err := connect(t, srv, modern).read("a:slow")
		if code(err) != jsonrpc.CodeInternalError || !strings.Contains(err.Error(), "timed out") || time.Since(began) != time.Minute {
			t.Errorf("got %v after %v", err, time.Since(began))
		}
	})
}

// Spec: S149
func TestFilesOnDisk(t *testing.T) {
	dir := t.TempDir()
	write := func(name string, data []byte) {
		t.Helper()
		must(t, os.MkdirAll(filepath.Dir(filepath.Join(dir, name)), 0o755), os.WriteFile(filepath.Join(dir, name), data, 0o644))
	}
	write("secret.txt", []byte("secret"))
	write("docs/a.txt", []byte("a"))
	write("docs/b/c.txt", []byte("c"))
	must(t, os.Symlink("../secret.txt", filepath.Join(dir, "docs", "out")), os.Symlink("a.txt", filepath.Join(dir, "docs", "in")), os.Symlink("..", filepath.Join(dir, "docs", "up")))
	root, err := os.OpenRoot(filepath.Join(dir, "docs"))
	must(t, err)
	defer root.Close()
	srv := server.MustNew("test", "1", nil)
	must(t, server.AddResourceTemplate(srv, mcp.ResourceTemplate{URITemplate: "file:///docs/{+path}", Name: "docs"}, server.Files(root.FS())),
		server.AddResourceTemplate(srv, mcp.ResourceTemplate{URITemplate: "list:///docs{/path*}", Name: "docs"}, server.Files(root.FS())))
	c := connect(t, srv, modern)
	for uri, want := range map[string]string{
		"file:///docs/a.txt": "a", "file:///docs/b/c.txt": "c", "file:///docs/b%2Fc.txt": "c", "file:///docs/in": "a", "list:///docs/b/c.txt": "c",
		"file:///docs/out": "", "file:///docs/up/secret.txt": "", "file:///docs/../secret.txt": "", "file:///docs/%2e%2e/secret.txt": "", "file:///docs/b/../a.txt": "",
		"list:///docs/..%2fsecret.txt": "", "list:///docs": "", "file:///docs/b": "", "file:///docs/nothing": "", "list:///docs/b%5cc.txt": "",
	} {
		got, err := c.read(uri)
		if got != want || (want == "") != (err != nil) {
			t.Errorf("%s: got %q, %v; want %q", uri, got, err, want)
		}
		if err != nil && strings.Contains(err.Error(), dir) {
			t.Errorf("%s: the error says where the files are: %v", uri, err)
		}
	}
}

// endless is a file system with an endless file.
type endless struct{ fstest.MapFS }

type endlessFile struct{ fs.File }

func (endlessFile) Read(p []byte) (int, error) { return len(p), nil }

func (e endless) Open(name string) (fs.File, error) {
	f, err := e.MapFS.Open(name)
	return endlessFile{f}, err
}

func TestFilesAreBounded(t *testing.T) {
	srv := server.MustNew("test", "1", nil)
	must(t, server.AddResourceTemplate(srv, mcp.ResourceTemplate{URITemplate: "file:///{+path}", Name: "docs"}, server.Files(endless{fstest.MapFS{"a": {}}})))
	if _, err := connect(t, srv, modern).read("file:///a"); code(err) != jsonrpc.CodeInternalError || !strings.Contains(err.Error(), "more than 33554432 bytes") {
		t.Errorf("got %v", err)
	}
}

// TestResourcesWhileChanging reads, lists and watches resources while they are added and removed.
func TestResourcesWhileChanging(t *testing.T) {
	srv := server.MustNew("test", "1", &server.Options{AdvertiseKinds: []server.Kind{server.KindResource, server.KindPrompt}})
	must(t, server.AddResource(srv, mcp.Resource{URI: "a:stays", Name: "n"}, server.Static("here")))
	var wg sync.WaitGroup
	for _, revision := range append(legacyRevisions(), modern) {
		c := connect(t, srv, revision)
		wg.Go(func() {
			for range 50 {
				if got, err := c.read("a:stays"); got != "here" {
					t.Errorf("got %q, %v", got, err)
				}
				if _, err := c.read("a:1"); err != nil && code(err) != jsonrpc.CodeInvalidParams && code(err) != mcp.CodeResourceNotFound {
					t.Error(err)
				}
				c.must("resources/list", "{}")
				if revision != modern {
					c.must("resources/subscribe", `{"uri":"a:stays"}`)
					c.must("resources/unsubscribe", `{"uri":"a:stays"}`)
				}
			}
		})
	}
	wg.Go(func() {
		for i := range 100 {
			must(t, server.AddResourceTemplate(srv, mcp.ResourceTemplate{URITemplate: "a:{x}", Name: "n"}, func(_ context.Context, v server.Vars) (string, error) { return v.Get("x"), nil }),
				server.AddPrompt(srv, mcp.Prompt{Name: fmt.Sprint(i)}, func(context.Context, struct{}) (string, error) { return "", nil }))
			srv.ResourceUpdated("a:stays")
			srv.RemoveResourceTemplates("a:{x}")
			srv.RemovePrompts(fmt.Sprint(i))
		}
	})
	wg.Wait()
}

func noTemplate(context.Context, server.Vars) (string, error) { return "", nil }

func TestTemplateRegistrationErrors(t *testing.T) {
	srv := server.MustNew("test", "1", nil)
	must(t, server.AddResourceTemplate(srv, mcp.ResourceTemplate{URITemplate: "a:{x}", Name: "n"}, noTemplate))
	if err := server.AddResourceTemplate(srv, mcp.ResourceTemplate{URITemplate: "a:{x}", Name: "n"}, noTemplate); !errors.Is(err, server.ErrDuplicate) {
		t.Errorf("twice: %v", err)
	}
	for _, tt := range []struct{ template, want string }{
		{"", ""},
		{"{x", "URI template: at byte 0: { without }"},
		{"b:{x}{x}", "appears twice"},
		{"b:{!x}", `"!x" is not a variable`},
		{"/a/{x}", "it must be a URI that begins with a scheme"},
		{"a{x}", "it must be a URI that begins with a scheme"},
		{"1:{x}", "it must be a URI that begins with a scheme"},
	} {
		err := server.AddResourceTemplate(srv, mcp.ResourceTemplate{URITemplate: tt.template, Name: "n"}, noTemplate)
		if err == nil || !strings.HasPrefix(err.Error(), fmt.Sprintf("resource template %q: ", tt.template)) || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%q: got %v, want %s", tt.template, err, tt.want)
		}
	}
	if err := server.AddResourceTemplate[string](srv, mcp.ResourceTemplate{URITemplate: "b:{x}", Name: "n"}, nil); err == nil || !strings.Contains(err.Error(), "it needs a function") {
		t.Errorf("no function: %v", err)
	}
	if err := server.AddResourceTemplate(srv, mcp.ResourceTemplate{URITemplate: "b:{x}", Name: "n"}, noTemplate, server.CompleteFrom("y")); err == nil || !strings.Contains(err.Error(), `variables: no "y" for a completer`) {
		t.Errorf("a completer for an unknown variable: %v", err)
	}
	must(t, server.AddResourceTemplate(srv, mcp.ResourceTemplate{URITemplate: "{+anything}", Name: "n"}, noTemplate))
}

// TestTemplateOrder shows that the most specific template is used, and the first of equally
// specific ones.
func TestTemplateOrder(t *testing.T) {
	srv := server.MustNew("test", "1", nil)
	for _, template := range []string{"{+all}", "a:{x}", "a:{+y}", "a:bc{x}", "a:{x}bcd", "a:b{x}d", "a:/{x}{?q}"} {
		must(t, server.AddResourceTemplate(srv, mcp.ResourceTemplate{URITemplate: template, Name: "n"}, func(context.Context, server.Vars) (string, error) { return template, nil }))
	}
	c := connect(t, srv, modern)
	for uri, want := range map[string]string{
		"b:c": "{+all}", "a:x": "a:{x}", "a:x/y": "a:{+y}", "a:bcd": "a:bc{x}", "a:bcbcd": "a:{x}bcd", "a:bxd": "a:b{x}d", "a:/x?q=1": "a:/{x}{?q}", "a:/x?r=1": "a:{+y}",
	} {
		if got, err := c.read(uri); got != want {
			t.Errorf("%s is read by %q, not %q (%v)", uri, got, want, err)
		}
	}
	if _, err := c.read("nonsense"); code(err) != jsonrpc.CodeInvalidParams {
		t.Errorf("what is no URI: %v", err)
	}
}

// FuzzRead shows that no URI reads a file outside of the root or causes a panic.
func FuzzRead(f *testing.F) {
	dir := f.TempDir()
	must(f, os.Mkdir(filepath.Join(dir, "docs"), 0o755), os.WriteFile(filepath.Join(dir, "docs", "a"), []byte("inside"), 0o644), os.WriteFile(filepath.Join(dir, "a"), []byte("outside"), 0o644))
	root, err := os.OpenRoot(filepath.Join(dir, "docs"))
	must(f, err)
	f.Cleanup(func() { root.Close() })
	srv := server.MustNew("test", "1", nil)
	must(f, server.AddResourceTemplate(srv, mcp.ResourceTemplate{URITemplate: "file:///{+path}", Name: "n"}, server.Files(root.FS())),
		server.AddResourceTemplate(srv, mcp.ResourceTemplate{URITemplate: "list:{/path*}{?q}", Name: "n"}, server.Files(root.FS())))
	c := connect(f, srv, modern)
	for _, uri := range []string{"file:///a", "file:///../a", "file:///%2e%2e/a", "list:/..%2fa", "list:/a?q=1", "file:////a", "file:///a%00", "FILE:///a", "x", "file:///%c3", "file:///a/0"} {
		f.Add(uri)
	}
	f.Fuzz(func(t *testing.T, uri string) {
		result, err := c.call(t.Context(), "resources/read", `{"uri":`+string(jsonwire.AppendQuote(nil, uri))+`}`)
		switch code(err) {
		case 0:
			if err != nil || strings.Contains(result, "outside") || !strings.Contains(result, "inside") {
				t.Errorf("%q: got %s, %v", uri, result, err)
			}
		case jsonrpc.CodeInvalidParams:
		default:
			t.Errorf("%q: %v", uri, err)
		}
	})
}
