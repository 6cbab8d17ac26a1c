package main

import (
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"testing/fstest"
)

var attribute = regexp.MustCompile(`\s(?:src|srcset|href)="([^"]*)"`)

// TestSite builds the site of this repository and follows every link in what was written.
func TestSite(t *testing.T) {
	out := t.TempDir()
	n, err := build("../../..", out)
	if err != nil {
		t.Fatal(err)
	}
	pages := 0
	err = filepath.WalkDir(out, func(file string, d os.DirEntry, err error) error {
		if err != nil || filepath.Ext(file) != ".html" {
			return err
		}
		pages++
		text, err := os.ReadFile(file)
		if err != nil {
			return err
		}
		for _, m := range attribute.FindAllStringSubmatch(string(text), -1) {
			target, _, _ := strings.Cut(m[1], "#")
			if target == "" || strings.Contains(target, "://") {
				continue
			}
			if info, err := os.Stat(filepath.Join(filepath.Dir(file), filepath.FromSlash(target))); err != nil || info.IsDir() {
				t.Errorf("%s: nothing is at %s", file, m[1])
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if pages != n || n < 30 {
		t.Errorf("build says %d pages, %d are there, want the same and at least 30", n, pages)
	}
	t.Run("search", func(t *testing.T) { testSearch(t, out) })
}

// testSearch asks the page in a browser.
func testSearch(t *testing.T, out string) {
	chromium, err := exec.LookPath("chromium")
	if err != nil {
		t.Skip("no chromium")
	}
	cmd := exec.CommandContext(t.Context(), chromium, "--headless", "--no-sandbox", "--disable-gpu", "--user-data-dir="+t.TempDir(),
		"--virtual-time-budget=20000", "--dump-dom", "file://"+path.Join(filepath.ToSlash(out), "doc/guide/host.html")+"?q=elicitation+Accept")
	dom, err := cmd.Output()
	if err != nil {
		t.Fatal(err)
	}
	_, results, ok := strings.Cut(string(dom), `<ol id="results">`)
	results, _, _ = strings.Cut(results, "</ol>")
	if !ok || !strings.Contains(results, `href="../../CHANGELOG.html#client"`) || !strings.Contains(results, "<mark>elicitation</mark>") {
		t.Errorf("results %q, want the changelog's section on the client", results)
	}
}

// TestLinks shows which links are faults, and where the others lead.
func TestLinks(t *testing.T) {
	root := fstest.MapFS{
		"README.md":       {Data: []byte("# A\n")},
		"doc/a.md":        {Data: []byte("# B\n")},
		"doc/b.svg":       {Data: []byte("<svg/>")},
		"x/README.md":     {Data: []byte("# C\n")},
		"y/main.go":       {Data: []byte("package main\n")},
		"empty/notes.txt": {Data: []byte("d")},
	}
	for _, tt := range []struct{ link, want string }{
		{"https://example.com/#a", "https://example.com/#a"},
		{"#top", "#top"},
		{"../README.md", "../index.html"},
		{"../README.md#a", "../index.html#a"},
		{"b.svg", "b.svg"},
		{"../x", "../x/index.html"},
		{"../y/", "../y/main.go.html"},
		{"../y/main.go", "../y/main.go.html"},
		{"../empty", ""},
		{"none.md", ""},
		{"../../outside.md", ""},
	} {
		s := &site{root: root, pages: map[string]*page{}, files: map[string]bool{}}
		if got, err := s.resolve("doc/a.md", tt.link); got != tt.want || (err == nil) != (tt.want != "") {
			t.Errorf("%s: got %q, %v, want %q", tt.link, got, err, tt.want)
		}
	}
	s := &site{root: fstest.MapFS{"a.md": {Data: []byte("# A\n\n## Has it\n\n[ok](#has-it) [bad](#hasnt)\n")}}, pages: map[string]*page{}}
	if err := s.add("a.md"); err != nil {
		t.Fatal(err)
	}
	if err := s.checkAnchors(); err == nil || !strings.Contains(err.Error(), "#hasnt") || strings.Contains(err.Error(), "#has-it") {
		t.Errorf("anchors: got %v, want an error about #hasnt alone", err)
	}
}
