package skills_test

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"log"
	"net"
	"os"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/google/go-cmp/cmp"

	"mcpwire/client"
	"mcpwire/jsonrpc"
	"mcpwire/mcp"
	"mcpwire/mcptest"
	"mcpwire/server"
	"mcpwire/skills"
)

const pdf = `---
name: pdf-processing
description: Extract, fill, and assemble PDF documents
metadata:
  version: "2.1.0"
  since: 2026-01-02
tags: [pdf, 1, 2.5, true, null]
---

Read references/FORMS.md first.
`

func text(s string) *fstest.MapFile { return &fstest.MapFile{Data: []byte(s)} }

func library() fstest.MapFS {
	return fstest.MapFS{
		"README.md":                                text("not a skill"),
		"pdf-processing/SKILL.md":                  text(pdf),
		"pdf-processing/references/FORMS.md":       text("# Forms\n"),
		"pdf-processing/logo image.png":            text("\x89PNG\xff\x00"),
		"pdf-processing/.git/config":               text("secret"),
		"pdf-processing/nested/extract/SKILL.md":   text("---\r\nname: extract\r\ndescription: Extract text\r\n---\r\n"),
		"pdf-processing/link.md":                   {Data: []byte("../secret"), Mode: os.ModeSymlink},
		"acme/billing/refunds/SKILL.md":            text("---\nname: refunds\ndescription: Refund\n---\n"),
		"acme/billing/refunds/examples/email.html": text("<p>Hello</p>"),
	}
}

var revisions = []mcp.Revision{mcp.Revision20251125, mcp.Revision20260728}

// dial connects a client of the revision to a server with the skills.
func dial(t *testing.T, r mcp.Revision, files fstest.MapFS) *client.Client {
	t.Helper()
	srv := server.MustNew("docs", "1.0.0", nil)
	if err := skills.Add(srv, files); err != nil {
		t.Fatal(err)
	}
	return mcptest.Connect(t, srv, &client.Options{Revisions: []mcp.Revision{r}})
}

func list(t *testing.T, c *client.Client) []*skills.Skill {
	t.Helper()
	var all []*skills.Skill
	for s, err := range skills.List(t.Context(), c) {
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, s)
	}
	return all
}

func TestSkills(t *testing.T) {
	for _, r := range revisions {
		t.Run(r.String(), func(t *testing.T) {
			mcptest.CheckLeaks(t)
			c := dial(t, r, library())
			all := list(t, c)
			var got []string
			for _, s := range all {
				line := s.URI + " " + s.Name + " " + s.Description
				for _, f := range s.Files {
					line += fmt.Sprintf(" %s:%d", f.Path, f.Size)
				}
				got = append(got, line)
			}
			want := []string{
				"skill://acme/billing/refunds/SKILL.md refunds Refund SKILL.md:42 examples/email.html:12",
				"skill://pdf-processing/SKILL.md pdf-processing Extract, fill, and assemble PDF documents " +
					fmt.Sprintf("SKILL.md:%d logo image.png:6 nested/extract/SKILL.md:52 references/FORMS.md:8", len(pdf)),
				"skill://pdf-processing/nested/extract/SKILL.md extract Extract text SKILL.md:52",
			}
			if diff := cmp.Diff(want, got); diff != "" {
				t.Fatalf("skills (-want +got):\n%s", diff)
			}

			s := all[1]
			const frontmatter = `{"name":"pdf-processing","description":"Extract, fill, and assemble PDF documents","metadata":{"version":"2.1.0","since":"2026-01-02"},"tags":["pdf",1,2.5,true,null]}`
			var have, wanted any
			if err := errors.Join(json.Unmarshal(s.Frontmatter, &have), json.Unmarshal([]byte(frontmatter), &wanted)); err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(wanted, have); diff != "" {
				t.Errorf("frontmatter (-want +got):\n%s", diff)
			}
			for name, want := range map[string]string{"SKILL.md": pdf, "references/FORMS.md": "# Forms\n", "logo image.png": "\x89PNG\xff\x00"} {
				if got, err := s.Read(t.Context(), c, name); string(got) != want || err != nil {
					t.Errorf("%s: got %q, %v, want %q", name, got, err, want)
				}
			}
			for name, mismatch := range map[string]bool{"none.md": true, "link.md": true, ".git/config": true, "../acme/billing/refunds/SKILL.md": false, "": false, "/SKILL.md": false} {
				if got, err := s.Read(t.Context(), c, name); err == nil || errors.Is(err, skills.ErrMismatch) != mismatch {
					t.Errorf("%s: got %q, %v, want an error that is ErrMismatch: %v", name, got, err, mismatch)
				}
			}

			one, err := skills.Get(t.Context(), c, s.URI)
			if diff := cmp.Diff(s, one); diff != "" || err != nil {
				t.Errorf("Get: %v (-listed +got):\n%s", err, diff)
			}
			if _, err := skills.Get(t.Context(), c, "skill://none/SKILL.md"); !client.IsServerError(err) || !strings.Contains(err.Error(), "-32602") {
				t.Errorf("Get of no skill: got %v, want -32602", err)
			}

			resources, err := skills.ReadFolder(t.Context(), c, "skill://pdf-processing")
			if err != nil {
				t.Fatal(err)
			}
			got = nil
			for _, r := range resources {
				got = append(got, r.URI+" "+r.Name+" "+r.MIMEType)
			}
			want = []string{
				"skill://pdf-processing/SKILL.md pdf-processing text/markdown",
				"skill://pdf-processing/logo%20image.png logo image.png image/png",
				"skill://pdf-processing/nested nested inode/directory",
				"skill://pdf-processing/references references inode/directory",
			}
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("folder (-want +got):\n%s", diff)
			}
			for _, uri := range []string{"skill://pdf-processing/SKILL.md", "skill://pdf-processing/", "skill://acme", "skill://none"} {
				if _, err := skills.ReadFolder(t.Context(), c, uri); !client.IsServerError(err) || !strings.Contains(err.Error(), "-32602") {
					t.Errorf("folder %s: got %v, want -32602", uri, err)
				}
			}
		})
	}
}

// TestView hides a skill from some callers, and a folder of another skill.
func TestView(t *testing.T) {
	hidden := server.NewView(func(kind server.Kind, name string) bool {
		return kind != server.KindResource || !strings.HasPrefix(name, "skill://acme/") && !strings.Contains(name, "/references/")
	})
	for _, r := range revisions {
		t.Run(r.String(), func(t *testing.T) {
			mcptest.CheckLeaks(t)
			srv := server.MustNew("docs", "1.0.0", &server.Options{View: func(context.Context, string) *server.View { return hidden }})
			if err := skills.Add(srv, library()); err != nil {
				t.Fatal(err)
			}
			c := mcptest.Connect(t, srv, &client.Options{Revisions: []mcp.Revision{r}})
			var names []string
			for _, s := range list(t, c) {
				names = append(names, s.Name)
			}
			if diff := cmp.Diff([]string{"pdf-processing", "extract"}, names); diff != "" {
				t.Errorf("skills (-want +got):\n%s", diff)
			}
			if _, err := skills.Get(t.Context(), c, "skill://acme/billing/refunds/SKILL.md"); !client.IsServerError(err) || !strings.Contains(err.Error(), "no skill has the URI") {
				t.Errorf("Get: got %v, want that there is no such skill", err)
			}
			resources, err := skills.ReadFolder(t.Context(), c, "skill://pdf-processing")
			if err != nil {
				t.Fatal(err)
			}
			var uris []string
			for _, resource := range resources {
				uris = append(uris, resource.URI)
			}
			want := []string{"skill://pdf-processing/SKILL.md", "skill://pdf-processing/logo%20image.png", "skill://pdf-processing/nested"}
			if diff := cmp.Diff(want, uris); diff != "" {
				t.Errorf("folder (-want +got):\n%s", diff)
			}
			for _, uri := range []string{"skill://acme/billing/refunds", "skill://pdf-processing/references"} {
				if _, err := skills.ReadFolder(t.Context(), c, uri); !client.IsServerError(err) || !strings.Contains(err.Error(), "is not a folder") {
					t.Errorf("folder %s: got %v, want that there is no such folder", uri, err)
				}
			}
			for _, uri := range []string{"skill://acme/billing/refunds/SKILL.md", "skill://pdf-processing/references/FORMS.md"} {
				if _, err := c.ReadResource(t.Context(), uri); !client.IsServerError(err) {
					t.Errorf("read %s: got %v, want an error of the server", uri, err)
				}
			}
		})
	}
}

// TestPages lists more skills than fit on a page.
func TestPages(t *testing.T) {
	files := fstest.MapFS{}
	for i := range 300 {
		files[fmt.Sprintf("s%d/SKILL.md", i)] = text(fmt.Sprintf("---\nname: s%d\ndescription: %s\n---\n", i, strings.Repeat("long ", 1000)))
	}
	c := dial(t, mcp.Revision20260728, files)
	seen := map[string]bool{}
	for _, s := range list(t, c) {
		seen[s.Name] = true
	}
	if len(seen) != 300 {
		t.Errorf("got %d skills, want 300", len(seen))
	}
	var first struct{ NextCursor string }
	if err := c.Call(t.Context(), "skills/list", nil, &first); err != nil || first.NextCursor == "" {
		t.Errorf("first page: cursor %q, %v", first.NextCursor, err)
	}
	if err := c.Call(t.Context(), "skills/list", map[string]string{"cursor": "made up"}, nil); err == nil || !strings.Contains(err.Error(), "-32602") {
		t.Errorf("unknown cursor: got %v, want -32602", err)
	}
}

// TestCacheHints checks that results have them in the era that has them.
func TestCacheHints(t *testing.T) {
	for r, want := range map[mcp.Revision]string{mcp.Revision20251125: "<nil> <nil>", mcp.Revision20260728: "60000 private"} {
		c := dial(t, r, library())
		for method, params := range map[string]any{
			"skills/list": nil, "skills/get": map[string]string{"uri": "skill://pdf-processing/SKILL.md"}, "resources/directory/read": map[string]string{"uri": "skill://pdf-processing"},
		} {
			var result map[string]any
			if err := c.Call(t.Context(), method, params, &result); err != nil {
				t.Fatal(err)
			}
			if got := fmt.Sprint(result["ttlMs"], " ", result["cacheScope"]); got != want {
				t.Errorf("%s %s: got %s, want %s", r, method, got, want)
			}
		}
	}
}

// TestAddErrors shows what Add rejects.
func TestAddErrors(t *testing.T) {
	many := fstest.MapFS{"a/SKILL.md": text("---\nname: a\ndescription: A\n---\n")}
	for i := range 512 {
		many[fmt.Sprintf("a/%d.md", i)] = text("x")
	}
	for name, tt := range map[string]struct {
		files fstest.MapFS
		want  string
	}{
		"another name":     {fstest.MapFS{"a/SKILL.md": text("---\nname: b\ndescription: B\n---\n")}, "the last folder is not the name b"},
		"invalid name":     {fstest.MapFS{"A/SKILL.md": text("---\nname: A\ndescription: B\n---\n")}, "lowercase"},
		"no description":   {fstest.MapFS{"a/SKILL.md": text("---\nname: a\n---\n")}, "no description"},
		"no frontmatter":   {fstest.MapFS{"a/SKILL.md": text("# A\n")}, "the first line must be ---"},
		"open frontmatter": {fstest.MapFS{"a/SKILL.md": text("---\nname: a\n")}, "does not end"},
		"not YAML":         {fstest.MapFS{"a/SKILL.md": text("---\nname: [\n---\n")}, "frontmatter"},
		"no mapping":       {fstest.MapFS{"a/SKILL.md": text("---\n- a\n---\n")}, "want a mapping"},
		"a key twice":      {fstest.MapFS{"a/SKILL.md": text("---\nname: a\nname: a\ndescription: A\n---\n")}, "twice"},
		"reserved":         {fstest.MapFS{"a/SKILL.md": text("---\nname: a\ndescription: A\nmetadata: {io.modelcontextprotocol/x: 1}\n---\n")}, "reserved"},
		"aliases": {fstest.MapFS{"a/SKILL.md": text("---\nname: a\ndescription: A\na: &a [x,x,x,x,x,x,x,x,x,x]\nb: &b [*a,*a,*a,*a,*a,*a,*a,*a,*a,*a]\n" +
			"c: &c [*b,*b,*b,*b,*b,*b,*b,*b,*b,*b]\nd: &d [*c,*c,*c,*c,*c,*c,*c,*c,*c,*c]\ne: [*d,*d,*d,*d,*d,*d,*d,*d,*d,*d]\n---\n")}, "values"},
		"in the root":    {fstest.MapFS{"SKILL.md": text("---\nname: a\ndescription: A\n---\n")}, "within the given one"},
		"too many files": {many, "513 files, limit 512"},
		"too large":      {fstest.MapFS{"a/SKILL.md": text("---\nname: a\ndescription: A\n---\n"), "a/x": {Data: make([]byte, 16<<20+1)}}, "too large"},
	} {
		err := skills.Add(server.MustNew("docs", "1.0.0", nil), tt.files)
		if err == nil || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%s: got %v, want an error with %q", name, err, tt.want)
		}
	}
	srv := server.MustNew("docs", "1.0.0", nil)
	if err := skills.Add(srv, library()); err != nil {
		t.Fatal(err)
	}
	if err := skills.Add(srv, library()); !errors.Is(err, server.ErrDuplicate) {
		t.Errorf("second Add: got %v, want ErrDuplicate", err)
	}
}

// scripted connects to a server that answers skills/list with entries, and
// resources/read with a text.
func scripted(t *testing.T, entries, contents string) *client.Client {
	t.Helper()
	srv := server.MustNew("docs", "1.0.0", nil)
	err := errors.Join(
		srv.AddExtension("io.modelcontextprotocol/skills", json.RawMessage("{}")),
		srv.AddRawMethod("skills/list", func(*server.Call, json.RawMessage) (json.RawMessage, error) {
			return json.RawMessage(`{"skills":[` + entries + `]}`), nil
		}),
		server.AddResource(srv, mcp.Resource{URI: "skill://a/SKILL.md", Name: "a"}, server.Static(contents)),
	)
	if err != nil {
		t.Fatal(err)
	}
	return mcptest.Connect(t, srv, nil)
}

const good = "---\nname: a\ndescription: A\n---\nBody.\n"

func digestOf(text string) string { return fmt.Sprintf("sha256:%x", sha256.Sum256([]byte(text))) }

// entryOf is an entry with one file.
func entryOf(frontmatter, digest string, size int) string {
	return fmt.Sprintf(`{"uri":"skill://a/SKILL.md","frontmatter":%s,"resources":[{"uri":"skill://a/SKILL.md","digest":%q,"size":%d}]}`, frontmatter, digest, size)
}

// TestMismatch shows which files are not used.
func TestMismatch(t *testing.T) {
	const frontmatter = `{"name":"a","description":"A"}`
	for name, tt := range map[string]struct {
		entry, contents string
		ok              bool
	}{
		"same":                {entryOf(frontmatter, digestOf(good), len(good)), good, true},
		"dynamic":             {`{"uri":"skill://a/SKILL.md","frontmatter":` + frontmatter + `,"resources":"dynamic"}`, good, true},
		"digest":              {entryOf(frontmatter, digestOf(good), len(good)), strings.Replace(good, "Body", "Evil", 1), false},
		"size":                {entryOf(frontmatter, digestOf(good), len(good)-1), good, false},
		"frontmatter":         {entryOf(`{"name":"a","description":"B"}`, digestOf(good), len(good)), good, false},
		"more frontmatter":    {entryOf(`{"name":"a","description":"A","license":"x"}`, digestOf(good), len(good)), good, false},
		"dynamic frontmatter": {`{"uri":"skill://a/SKILL.md","frontmatter":{"name":"a","description":"B"},"resources":"dynamic"}`, good, false},
		"no frontmatter":      {entryOf(frontmatter, digestOf("# A\n"), 4), "# A\n", false},
	} {
		c := scripted(t, tt.entry, tt.contents)
		s := list(t, c)[0]
		got, err := s.Read(t.Context(), c, "SKILL.md")
		if tt.ok && (err != nil || string(got) != tt.contents) || !tt.ok && (!errors.Is(err, skills.ErrMismatch) || got != nil) {
			t.Errorf("%s: got %q, %v", name, got, err)
		}
	}
}

// TestEntries shows which entries of a server are errors. The list goes on after them.
func TestEntries(t *testing.T) {
	const frontmatter = `{"name":"a","description":"A"}`
	file := func(uri, digest, size string) string {
		return `{"uri":"skill://a/SKILL.md","frontmatter":` + frontmatter + `,"resources":[{"uri":"` + uri + `","digest":"` + digest + `","size":` + size + `}]}`
	}
	last := entryOf(frontmatter, digestOf(good), len(good))
	for name, entry := range map[string]string{
		"no URI":            `{"frontmatter":` + frontmatter + `,"resources":[]}`,
		"other file":        strings.Replace(last, `"uri":"skill://a/SKILL.md","f`, `"uri":"skill://a/README.md","f`, 1),
		"other name":        strings.Replace(last, `"name":"a"`, `"name":"b"`, 1),
		"invalid name":      strings.ReplaceAll(strings.Replace(last, `"name":"a"`, `"name":"a--b"`, 1), "//a/", "//a--b/"),
		"no frontmatter":    `{"uri":"skill://a/SKILL.md","resources":"dynamic"}`,
		"no description":    strings.Replace(last, `"description":"A"`, `"x":"A"`, 1),
		"no resources":      `{"uri":"skill://a/SKILL.md","frontmatter":` + frontmatter + `}`,
		"other resources":   `{"uri":"skill://a/SKILL.md","frontmatter":` + frontmatter + `,"resources":"static"}`,
		"no SKILL.md":       file("skill://a/x.md", digestOf(good), "1"),
		"outside":           file("skill://b/SKILL.md", digestOf(good), "1"),
		"dots":              file("skill://a/%2e%2e/SKILL.md", digestOf(good), "1"),
		"digest":            file("skill://a/SKILL.md", "sha256:AA", "1"),
		"size":              file("skill://a/SKILL.md", digestOf(good), "-1"),
		"no size":           file("skill://a/SKILL.md", digestOf(good), "null"),
		"large":             file("skill://a/SKILL.md", digestOf(good), "16777217"),
		"a file of a skill": strings.Replace(last, `"resources":[`, `"resources":[{"uri":"skill://a/SKILL.md","digest":"`+digestOf(good)+`","size":1},`, 1),
	} {
		c := scripted(t, entry+","+last, good)
		var errs, ok int
		for s, err := range skills.List(t.Context(), c) {
			if err != nil {
				errs++
			} else if s.Name == "a" {
				ok++
			}
		}
		if errs != 1 || ok != 1 {
			t.Errorf("%s: got %d errors and %d skills, want 1 and 1", name, errs, ok)
		}
	}
}

// TestUndeclared checks that nothing is sent to a server without the extension.
func TestUndeclared(t *testing.T) {
	c := mcptest.Connect(t, server.MustNew("docs", "1.0.0", nil), nil)
	for _, err := range skills.List(t.Context(), c) {
		if err == nil || client.IsServerError(err) {
			t.Errorf("List: got %v, want an error of this side", err)
		}
	}
	if _, err := skills.Get(t.Context(), c, "skill://a/SKILL.md"); err == nil || client.IsServerError(err) {
		t.Errorf("Get: got %v, want an error of this side", err)
	}
	c = scripted(t, "", good) // which does not declare directoryRead
	if _, err := skills.ReadFolder(t.Context(), c, "skill://a"); err == nil || client.IsServerError(err) {
		t.Errorf("ReadFolder: got %v, want an error of this side", err)
	}
}

// inMemory connects a client to a server in the same process.
func inMemory(srv *server.Server) *client.Client {
	clientEnd, serverEnd := net.Pipe()
	go srv.Serve(context.Background(), jsonrpc.NewFramer(serverEnd, nil))
	c, err := client.Dial(context.Background(), client.FramerTransport(jsonrpc.NewFramer(clientEnd, nil)), nil)
	if err != nil {
		log.Fatal(err)
	}
	return c
}

func Example() {
	files := fstest.MapFS{
		"git-workflow/SKILL.md": {Data: []byte("---\nname: git-workflow\ndescription: Commit as this team does\n---\nWrite the subject in the imperative.\n")},
	}
	srv := server.MustNew("docs", "1.0.0", nil)
	if err := skills.Add(srv, files); err != nil { // files is os.DirFS("skills") in most programs
		log.Fatal(err)
	}

	ctx := context.Background()
	c := inMemory(srv)
	defer c.Close()
	for skill, err := range skills.List(ctx, c) {
		if err != nil {
			log.Fatal(err)
		}
		fmt.Println(skill.Name+":", skill.Description)
		text, err := skill.Read(ctx, c, "SKILL.md") // when the model wants it
		if err != nil {
			log.Fatal(err)
		}
		_, body, _ := bytes.Cut(text, []byte("\n---\n"))
		fmt.Printf("%s", body)
	}
	// Output:
	// git-workflow: Commit as this team does
	// Write the subject in the imperative.
}
