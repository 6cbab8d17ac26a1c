package gateway

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"mcpwire/client"
	"mcpwire/internal/proxy/bridge"
	"mcpwire/mcp"
	"mcpwire/server"
)

// appServer returns a server with an MCP App. The URIs are those of each such server. The tool
// extra exists only for clients that declare apps, if the server is conditional.
func appServer(name string, conditional bool, revisions ...mcp.Revision) *server.Server {
	all, plain := server.NewView(func(server.Kind, string) bool { return true }), server.NewView(func(_ server.Kind, name string) bool { return name != "extra" })
	srv := server.MustNew(name, "1", &server.Options{
		Revisions: revisions, Tasks: &server.TaskOptions{PollInterval: time.Millisecond},
		View: func(ctx context.Context, _ string) *server.View {
			if _, ok := server.CallOf(ctx).ClientExtension(extensionApps); ok || !conditional {
				return all
			}
			return plain
		},
	})
	const page, meta = "ui://app/chart.html", `{"ui":{"resourceUri":"ui://app/chart.html","visibility":["model","app"]},"ui/resourceUri":"ui://app/chart.html"}`
	must(server.AddToolWith(srv, mcp.Tool{Name: "chart", Meta: json.RawMessage(meta)}, func(context.Context, none) (*mcp.CallToolResult, error) {
		return &mcp.CallToolResult{Meta: json.RawMessage(meta), Content: []mcp.ContentBlock{
			mcp.ResourceLink{URI: page, Name: "chart"},
			mcp.EmbeddedResource{Resource: mcp.ResourceContents{URI: page, Text: name}},
			mcp.ResourceLink{URI: "https://example.com/a+b", Name: "web"},
		}}, nil
	}))
	must(server.AddToolWith(srv, mcp.Tool{Name: "later", Execution: &mcp.ToolExecution{TaskSupport: mcp.TaskSupportRequired}}, func(context.Context, none) (*mcp.CallToolResult, error) {
		return &mcp.CallToolResult{Content: []mcp.ContentBlock{mcp.ResourceLink{URI: page, Name: "chart"}}}, nil
	}))
	must(server.AddTool(srv, "extra", "", func(context.Context, none) (string, error) { return name, nil }))
	must(server.AddTool(srv, "only_"+name, "", func(context.Context, none) (string, error) { return name, nil }))
	must(server.AddTool(srv, "open", "", func(_ context.Context, in struct{ URI string }) (string, error) { return in.URI, nil }))
	must(server.AddResource(srv, mcp.Resource{URI: page, Name: "chart", MIMEType: "text/html;profile=mcp-app"}, server.Static("page of "+name)))
	must(server.AddResourceTemplate(srv, mcp.ResourceTemplate{URITemplate: "data:{id}", Name: "data"}, func(_ context.Context, vars server.Vars) (string, error) { return name + vars.Get("id"), nil },
		server.CompleteFrom("id", "7", "8")))
	must(server.AddPrompt(srv, mcp.Prompt{Name: "p"}, func(context.Context, none) (*mcp.GetPromptResult, error) {
		return &mcp.GetPromptResult{Messages: []mcp.PromptMessage{{Role: "user", Content: mcp.ResourceLink{URI: page, Name: "chart"}}}}, nil
	}))
	return srv
}

var appsDeclared = map[string]json.RawMessage{extensionApps: json.RawMessage(`{"mimeTypes":["text/html;profile=mcp-app"]}`)}

// TestApps checks for all pairs of eras that the MCP Apps of two servers with equal URIs work, for
// clients that declare apps, and that others do not see the tools that need them.
func TestApps(t *testing.T) {
	eras := []mcp.Revision{mcp.LatestLegacyRevision, mcp.LatestRevision}
	for _, downstream := range eras {
		for _, upstream := range eras {
			t.Run(fmt.Sprint(downstream, " to ", upstream), func(t *testing.T) {
				a, b := appServer("a", true, upstream), appServer("b", true, upstream)
				t.Cleanup(func() { a.Close(context.Background()); b.Close(context.Background()) })
				g := newGateway(t, &Options{Upstreams: []Upstream{streamUpstream("a", a), streamUpstream("b", b)}})
				opts := fullClientOptions(downstream)
				without := dialStream(t, g, opts)
				opts.Extensions = appsDeclared
				with := dialStream(t, g, opts)
				if got, want := toolNames(t, without), "a__chart a__later a__only_a a__open b__chart b__later b__only_b b__open"; got != want {
					t.Errorf("without apps: got %q, want %q", got, want)
				}
				if got, want := toolNames(t, with), "a__chart a__later a__extra a__only_a a__open b__chart b__later b__extra b__only_b b__open"; got != want {
					t.Errorf("with apps: got %q, want %q", got, want)
				}
				if _, err := client.CallTool[string](t.Context(), without, "b__extra", nil); !client.IsServerError(err) || !strings.Contains(err.Error(), "unknown tool") {
					t.Errorf("extra without apps: got %v", err)
				}
				for _, up := range []struct {
					name string
					srv  *server.Server
				}{{"a", a}, {"b", b}} {
					checkApp(t, with, up.srv, up.name)
				}
				// An app calls a tool by the server's own name, which only one server may have.
				if got, err := client.CallTool[string](t.Context(), with, "only_b", nil); got != "b" || err != nil {
					t.Errorf("a call of an app: got %q, %v", got, err)
				}
				for name, c := range map[string]*client.Client{"extra": with, "only_b": without} {
					if _, err := client.CallTool[string](t.Context(), c, name, nil); !client.IsServerError(err) {
						t.Errorf("%s: got %v, want unknown tool", name, err)
					}
				}
			})
		}
	}
}

// checkApp checks that all places name the page of an app by a URI with which it can be read.
func checkApp(t *testing.T, c *client.Client, srv *server.Server, up string) {
	t.Helper()
	ctx, page := t.Context(), "ui://"+up+"+app/chart.html"
	meta := `{"ui":{"resourceUri":"` + page + `","visibility":["model","app"]},"ui/resourceUri":"` + page + `"}`
	var got []string
	for tool, err := range c.Tools(ctx) {
		if err == nil && tool.Name == up+"__chart" {
			got = append(got, string(tool.Meta))
		}
	}
	for r, err := range c.Resources(ctx) {
		if err == nil && strings.HasPrefix(r.URI, "ui://"+up) {
			got = append(got, r.URI)
		}
	}
	r, err := c.CallTool(ctx, up+"__chart", nil)
	if err != nil || len(r.Content) != 3 {
		t.Fatalf("got %+v, %v", r, err)
	}
	for _, key := range []string{"ui", "ui/resourceUri"} {
		var all map[string]json.RawMessage
		must(json.Unmarshal(r.Meta, &all))
		got = append(got, string(all[key]))
	}
	got = append(got, r.Content[0].(mcp.ResourceLink).URI, r.Content[1].(mcp.EmbeddedResource).Resource.URI, r.Content[2].(mcp.ResourceLink).URI)
	task, err := c.StartTool(ctx, up+"__later", nil)
	if err != nil {
		t.Fatal(err)
	}
	if r, err = task.Wait(ctx); err != nil || len(r.Content) != 1 {
		t.Fatalf("task: got %+v, %v", r, err)
	}
	got = append(got, r.Content[0].(mcp.ResourceLink).URI)
	p, err := c.GetPrompt(ctx, up+"__p", nil)
	if err != nil {
		t.Fatal(err)
	}
	got = append(got, p.Messages[0].Content.(mcp.ResourceLink).URI)
	want := []string{meta, page, `{"resourceUri":"` + page + `","visibility":["model","app"]}`, `"` + page + `"`, page, page, "https://example.com/a+b", page, page}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("%s: URIs (-want +got):\n%s", up, diff)
	}
	for uri, text := range map[string]string{page: "page of " + up, "data:" + up + "+9": up + "9"} {
		if r, err := c.ReadResource(ctx, uri); err != nil || len(r.Contents) != 1 || r.Contents[0].Text != text || r.Contents[0].URI != uri {
			t.Errorf("read %s: got %+v, %v", uri, r, err)
		}
	}
	if done, err := c.Complete(ctx, mcp.ResourceTemplateReference{URI: "data:" + up + "+{id}"}, mcp.CompleteArgument{Name: "id", Value: ""}, nil); err != nil || len(done.Values) != 2 {
		t.Errorf("completion: got %+v, %v", done, err)
	}
	for uri, own := range map[string]string{page: "ui://app/chart.html", "ui://other+x": "ui://other+x", "https://" + up + "+x": "https://" + up + "+x"} {
		if got, err := client.CallTool[string](ctx, c, up+"__open", map[string]string{"URI": uri}); got != own || err != nil {
			t.Errorf("argument %s: got %q, %v, want %q", uri, got, err, own)
		}
	}
	events := make(chan client.Event, 10)
	sub, err := c.ListenFunc(ctx, mcp.SubscriptionFilter{ResourceSubscriptions: []string{page}}, func(e client.Event) { events <- e })
	if err != nil {
		t.Fatal(err)
	}
	defer sub.Close()
	srv.ResourceUpdated("ui://app/chart.html")
	if e := <-events; e.URI != page {
		t.Errorf("updated: got %v, want %s", e, page)
	}
}

// TestOwnURIs checks that a URI that a client has from a text, as the server knows it, is read from
// the only server that may have it, and that its meaning does not change when another upstream
// joins, wherever that is in the configuration.
func TestOwnURIs(t *testing.T) {
	for _, tt := range []struct {
		era      bridge.Era
		revision mcp.Revision
	}{{bridge.EraLegacy, mcp.LatestLegacyRevision}, {bridge.EraModern, mcp.LatestRevision}} {
		synctest.Test(t, func(t *testing.T) {
			first := appServer("a", false)
			a, b := streamUpstream("a", first), streamUpstream("B", appServer("b", false))
			a.Fingerprint, b.Fingerprint = "a", "b"
			g := newGateway(t, &Options{Upstreams: []Upstream{a}})
			defer g.Close()
			c := dialStream(t, g, client.Options{Revisions: []mcp.Revision{tt.revision}})
			defer c.Close()
			check := func(want map[string]string) {
				t.Helper()
				for uri, text := range want {
					got := "none"
					r, err := c.ReadResource(t.Context(), uri)
					if err == nil {
						got = r.Contents[0].Text
						if r.Contents[0].URI != uri && !strings.HasPrefix(uri, "UI:") && !strings.HasPrefix(uri, "ui://b+") {
							t.Errorf("%s: the contents have the URI %s", uri, r.Contents[0].URI)
						}
					} else if !client.IsNotFound(err) {
						t.Errorf("%s: got %v", uri, err)
					}
					if got != text {
						t.Errorf("%s: got %s, want %s", uri, got, text)
					}
				}
			}
			check(map[string]string{"ui://a+app/chart.html": "page of a", "ui://app/chart.html": "page of a", "data:a+7": "a7", "data:7": "a7", "ui://app/other": "none", "other:7": "none"})
			events := make(chan string, 10)
			sub, err := c.ListenFunc(t.Context(), mcp.SubscriptionFilter{ResourceSubscriptions: []string{"ui://app/chart.html"}}, func(e client.Event) { events <- e.URI })
			if err != nil {
				t.Fatal(err)
			}
			first.ResourceUpdated("ui://app/chart.html")
			if got := <-events; got != "ui://app/chart.html" {
				t.Errorf("updated: got %s", got)
			}
			if err := sub.Close(); err != nil {
				t.Error(err)
			}
			for _, order := range [][]Upstream{{a, b}, {b, a}} {
				if err := g.Apply(&Options{Upstreams: order}); err != nil {
					t.Fatal(err)
				}
				g.fresh(t.Context(), tt.era, nil, true)
				check(map[string]string{
					"ui://a+app/chart.html": "page of a", "data:a+7": "a7", "ui://B+app/chart.html": "page of b", "ui://b+app/chart.html": "page of b",
					"ui://app/chart.html": "none", "data:7": "none", "ui://c+app/chart.html": "none",
				})
			}
		})
	}
}

// TestExposedURI checks that the gateway's URI keeps the scheme, leads back to the server's own,
// and that URLs do not change.
func TestExposedURI(t *testing.T) {
	g := newGateway(t, &Options{Upstreams: []Upstream{streamUpstream("b-1", nil), streamUpstream("B_2", nil)}})
	st := g.state.Load()
	for _, tt := range []struct{ own, want string }{
		{"ui://x/y", "ui://b-1+x/y"},
		{"ui://b-1+x", "ui://b-1+b-1+x"},
		{"ui://B_2+x", "ui://b-1+B_2+x"},
		{"file:///a b", "file://b-1+/a b"},
		{"file:///{+path}", "file://b-1+/{+path}"},
		{"git+ssh://h/x+y", "git+ssh://b-1+h/x+y"},
		{"urn:isbn:1", "urn:b-1+isbn:1"},
		{"x:", "x:b-1+"},
		{"x:/y", "x:b-1+/y"},
		{"readme.md", "mcpw:b-1+readme.md"},
		{"{+uri}", "mcpw:b-1+{+uri}"},
		{"1x:y", "mcpw:b-1+1x:y"},
		{"ü:y", "mcpw:b-1+ü:y"},
		{"mcpw:y", "mcpw:b-1+mcpw:y"},
		{"mcpw://y", "mcpw:b-1+mcpw://y"},
		{"", "mcpw:b-1+"},
	} {
		got := exposedURI("b-1", tt.own)
		if got != tt.want {
			t.Errorf("%q: got %q, want %q", tt.own, got, tt.want)
		}
		for _, uri := range []string{got, strings.Replace(got, "b-1+", "B-1+", 1)} {
			if u, own := st.ownURI(uri); u != st.upstreams[0] || own != tt.own {
				t.Errorf("%q: got %q of %v back, want %q", uri, own, u, tt.own)
			}
		}
	}
	for _, uri := range []string{"https://b-1+x/y", "HTTP://b-1+x", "https://example.com/{id}"} {
		if got := exposedURI("b-1", uri); got != uri {
			t.Errorf("%q: got %q", uri, got)
		}
		if u, _ := st.ownURI(uri); u != nil {
			t.Errorf("%q: got an owner", uri)
		}
	}
}
