package matrix

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"mcpwire/client"
	"mcpwire/jsonrpc"
	"mcpwire/mcp"
	"mcpwire/server"
)

// newResourceServer returns a server with texts, binary data and templates.
func newResourceServer(func()) *server.Server {
	srv := server.MustNew("resources", "1", &server.Options{Limits: server.Limits{PageSize: 2}})
	var reads counter
	must(
		server.AddResource(srv, fullResource(), server.Static("A\n")),
		server.AddResource(srv, mcp.Resource{URI: "lib://data", Name: "data", MIMEType: "image/png"}, server.Static([]byte{0, 1, 255})),
		server.AddResource(srv, mcp.Resource{URI: "lib://parts", Name: "parts"}, server.Static([]mcp.ResourceContents{
			{URI: "lib://parts/1", Text: "one"}, {URI: "lib://parts/2", Blob: []byte{2}, MIMEType: "application/x"},
		})),
		server.AddResource(srv, mcp.Resource{URI: "lib://kept", Name: "kept"}, func(context.Context) (*mcp.ReadResourceResult, error) {
			reads.add()
			return server.CacheFor(fmt.Sprint("read ", reads.value()), time.Hour, mcp.CacheScopePublic), nil
		}),
		server.AddResource(srv, mcp.Resource{URI: "lib://gone", Name: "gone"}, func(context.Context) (string, error) { return "", server.ErrNotFound }),
		server.AddResource(srv, mcp.Resource{URI: "lib://broken", Name: "broken"}, func(context.Context) (string, error) { return "", errors.New("a secret") }),
		server.AddResourceTemplate(srv, mcp.ResourceTemplate{URITemplate: "row://{row}/{+path}{?tag*}", Name: "row", MIMEType: "text/plain"}, vars),
		server.AddResourceTemplate(srv, mcp.ResourceTemplate{URITemplate: "row://{row}/index", Name: "index"}, vars),
		server.AddResourceTemplate(srv, mcp.ResourceTemplate{URITemplate: "lib://{name}", Name: "shadowed"}, func(context.Context, server.Vars) (string, error) { return "template", nil }),
	)
	return srv
}

func fullResource() mcp.Resource {
	return mcp.Resource{
		URI: "lib://a", Name: "a", Title: "The A", Description: "A letter.", MIMEType: "text/plain", Size: new(int64(2)),
		Annotations: &mcp.Annotations{Audience: []mcp.Role{mcp.RoleUser}, Priority: new(0.5), LastModified: "2026-01-01T00:00:00Z"},
		Icons:       []mcp.Icon{{Src: "https://example.com/a.png"}},
	}
}

// vars returns the variables of the URI.
func vars(_ context.Context, v server.Vars) (string, error) {
	if v.Get("row") == "none" {
		return "", fmt.Errorf("row none: %w", server.ErrNotFound)
	}
	var all []string
	for _, name := range slices.Sorted(maps.Keys(v)) {
		all = append(all, fmt.Sprintf("%s=%q", name, v[name]))
	}
	return strings.Join(all, " "), nil
}

// read reads a resource that has one part, and returns the part.
func (s *subtest) read(uri string, opts ...client.CallOption) mcp.ResourceContents {
	s.Helper()
	res, err := s.client().ReadResource(s.Context(), uri, opts...)
	ok(s, "read "+uri, err)
	if len(res.Contents) != 1 {
		s.Fatalf("read %s: got %d parts, want 1", uri, len(res.Contents))
	}
	return res.Contents[0]
}

func TestResources(t *testing.T) {
	testBehaviors(t, "resources", []behavior{
		// Spec: S128
		{name: "lists", test: func(s *subtest) {
			var uris, templates []string
			for r, err := range s.client().Resources(s.Context()) {
				ok(s, "list", err)
				uris = append(uris, r.URI)
			}
			same(s, "resources", uris, []string{"lib://a", "lib://data", "lib://parts", "lib://kept", "lib://gone", "lib://broken"})
			for r, err := range s.client().ResourceTemplates(s.Context()) {
				ok(s, "list", err)
				templates = append(templates, r.URITemplate)
			}
			same(s, "templates", templates, []string{"row://{row}/{+path}{?tag*}", "row://{row}/index", "lib://{name}"})
		}},
		{name: "the definition of a resource in the revision", test: func(s *subtest) {
			page, err := s.client().ListResources(s.Context(), nil)
			ok(s, "list", err)
			want := fullResource()
			if !s.Titles {
				want.Title = ""
			}
			if !s.ItemMeta {
				want.Annotations.LastModified = ""
			}
			if !s.Icons {
				want.Icons = nil
			}
			same(s, "resource", page.Resources[0], want)
		}},
		{name: "text", test: func(s *subtest) {
			same(s, "contents", s.read("lib://a"), mcp.ResourceContents{URI: "lib://a", MIMEType: "text/plain", Text: "A\n"})
		}},
		// Spec: S145
		{name: "data", test: func(s *subtest) {
			same(s, "contents", s.read("lib://data"), mcp.ResourceContents{URI: "lib://data", MIMEType: "image/png", Blob: []byte{0, 1, 255}})
		}},
		{name: "several parts", test: func(s *subtest) {
			res, err := s.client().ReadResource(s.Context(), "lib://parts")
			ok(s, "read", err)
			same(s, "contents", res.Contents, []mcp.ResourceContents{
				{URI: "lib://parts/1", Text: "one"}, {URI: "lib://parts/2", Blob: []byte{2}, MIMEType: "application/x"},
			})
		}},
		{name: "variables of a template", test: func(s *subtest) {
			for uri, want := range map[string]string{
				"row://7/a/b.txt":           `path=["a/b.txt"] row=["7"]`,
				"row://7/a?tag=x&tag=y":     `path=["a"] row=["7"] tag=["x" "y"]`,
				"row://a%2Fb%20c/%C3%BC":    `path=["ü"] row=["a/b c"]`,
				"row://7/index":             `row=["7"]`, // the template with the longer literal text is used
				"row://%2e%2e/../etc/hosts": `path=["../etc/hosts"] row=[".."]`,
			} {
				got := s.read(uri)
				same(s, uri, got.Text, want)
				same(s, uri, got.URI, uri)
			}
		}},
		{name: "a resource has precedence over a template", test: func(s *subtest) {
			same(s, "resource", s.read("lib://a").Text, "A\n")
			same(s, "template", s.read("lib://b").Text, "template")
		}},
		// Spec: S18 S147 S148
		{name: "unknown resources", test: func(s *subtest) {
			code := mcp.CodeResourceNotFound
			if s.Modern {
				code = jsonrpc.CodeInvalidParams
			}
			for _, uri := range []string{"lib://gone", "row://none/x", "other://a"} {
				_, err := s.client().ReadResource(s.Context(), uri)
				e := wantError(s, uri, err, code)
				same(s, "data", string(e.Data), `{"uri":"`+uri+`"}`)
				same(s, "is not found", client.IsNotFound(err), true)
			}
		}},
		{name: "the text of an internal error is not sent", test: func(s *subtest) {
			_, err := s.client().ReadResource(s.Context(), "lib://broken")
			e := wantError(s, "read", err, jsonrpc.CodeInternalError)
			if strings.Contains(e.Error()+string(e.Data), "secret") || client.IsNotFound(err) {
				s.Errorf("got %v, data %s", e, e.Data)
			}
		}},
		// Spec: S144
		{name: "invalid URIs", test: func(s *subtest) {
			for _, uri := range []string{"", "a", "/a", "lib://%zz", "lib:// a"} {
				_, err := s.client().ReadResource(s.Context(), uri)
				wantError(s, uri, err, jsonrpc.CodeInvalidParams)
			}
		}},
		{name: "cacheable contents are read once", when: modern, test: func(s *subtest) {
			first := s.read("lib://kept").Text
			same(s, "again", s.read("lib://kept").Text, first)
			if again := s.read("lib://kept", client.WithoutCache()).Text; again == first {
				s.Errorf("got %s, want another reading", again)
			}
		}, instead: func(s *subtest) {
			first := s.read("lib://kept").Text
			if again := s.read("lib://kept").Text; again == first {
				s.Errorf("got %s, want another reading", again)
			}
		}},
	})
}
