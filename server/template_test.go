package server_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"mcpwire/internal/jsonwire"
	"mcpwire/jsonrpc"
	"mcpwire/mcp"
	"mcpwire/server"
)

func noTemplate(context.Context, server.Vars) (string, error) { return "", nil }

func TestTemplateRegistrationErrors(t *testing.T) {
	srv := server.New("test", "1", nil)
	must(t, server.AddResourceTemplate(srv, mcp.ResourceTemplate{URITemplate: "a:{x}", Name: "n"}, noTemplate))
	if err := server.AddResourceTemplate(srv, mcp.ResourceTemplate{URITemplate: "a:{x}", Name: "n"}, noTemplate); !errors.Is(err, server.ErrDuplicate) {
		t.Errorf("twice: %v", err)
	}
	for _, tt := range []struct{ template, want string }{
		{"", ""},
		{"{x", "URI template: at byte 0: { without }"},
		{"b:{x}{x}", "stands twice"},
		{"b:{!x}", `"!x" is no variable`},
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
	if err := server.AddResourceTemplate(srv, mcp.ResourceTemplate{URITemplate: "b:{x}", Name: "n"}, noTemplate, server.CompleteFrom("y")); err == nil || !strings.Contains(err.Error(), `variables: there is no "y" for a completer`) {
		t.Errorf("a completer for nothing: %v", err)
	}
	must(t, server.AddResourceTemplate(srv, mcp.ResourceTemplate{URITemplate: "{+anything}", Name: "n"}, noTemplate))
}

// TestTemplateOrder: the template that says most counts, of those that say as much the first.
func TestTemplateOrder(t *testing.T) {
	srv := server.New("test", "1", nil)
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

// FuzzRead: no URI reads a file that is not below the root, or upsets the server.
func FuzzRead(f *testing.F) {
	dir := f.TempDir()
	must(f, os.Mkdir(filepath.Join(dir, "docs"), 0o755), os.WriteFile(filepath.Join(dir, "docs", "a"), []byte("inside"), 0o644), os.WriteFile(filepath.Join(dir, "a"), []byte("outside"), 0o644))
	root, err := os.OpenRoot(filepath.Join(dir, "docs"))
	must(f, err)
	f.Cleanup(func() { root.Close() })
	srv := server.New("test", "1", nil)
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
