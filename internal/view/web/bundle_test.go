package web_test

import (
	"crypto/sha256"
	"encoding/base64"
	"io/fs"
	"regexp"
	"strings"
	"testing"
	"testing/fstest"

	"mcpwire/internal/view/web"
)

func TestBundle(t *testing.T) {
	got, err := web.Bundle(plainPage(), []byte(`{"x":"</script><!--<script>\u2028"}`))
	if err != nil {
		t.Fatal(err)
	}
	script := "\"use strict\";\n// b.js\nfunction b() {}\n// main.js\nb();\n"
	style := "body { color: red }\n\n"
	want := "<!doctype html>\n<html lang=\"en\"><head><meta charset=\"utf-8\">\n" +
		"<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; script-src " + source(script) + "; style-src " + source(style) +
		"; img-src blob: data:; media-src blob:; base-uri 'none'; form-action 'none'\">\n<meta name=\"referrer\" content=\"no-referrer\">\n\n\n<style>" + style + "</style>\n</head><body>\n" +
		`<script type="application/json" id="mcpwire-data">{"x":"\u003c/script\u003e\u003c!--\u003cscript\u003e\u2028"}</script>` +
		"\n<script type=\"module\">" + script + "</script>\n</body></html>\n"
	if string(got) != want {
		t.Errorf("the page is\n%s\nwant\n%s", got, want)
	}
}

func source(text string) string {
	sum := sha256.Sum256([]byte(text))
	return "'sha256-" + base64.StdEncoding.EncodeToString(sum[:]) + "'"
}

// TestBundleRefuses: a page that would not run is an error.
func TestBundleRefuses(t *testing.T) {
	for _, tt := range []struct{ name, file, from, to, want string }{
		{"a second script", "index.html", "</body>", "<script src=\"/static/b.js\"></script></body>", "one script"},
		{"an inline script", "index.html", "</body>", "<script>1</script></body>", "one script"},
		{"a script inside a line", "index.html", "<script type", "x<script type", "one script"},
		{"a style sheet inside a line", "index.html", "<link", "x<link", "style sheet"},
		{"an inline style sheet", "index.html", "</head>", "<style>a{}</style></head>", "style sheet"},
		{"no charset", "index.html", "<meta charset=\"utf-8\">", "", "charset"},
		{"no doctype", "index.html", "<!doctype html>", "", "doctype"},
		{"an open head", "index.html", "</head>", "", "close its head"},
		{"a style sheet that is not there", "index.html", "a.css", "b.css", "has no b.css"},
		{"a style sheet that loads", "a.css", "red", "red; background: url(http://evil.example/)", "a.css"},
		{"a style sheet that imports", "a.css", "body", "@import 'x'; body", "a.css"},
		{"a style sheet that ends", "a.css", "red", "red } </STYLE> {", "a.css"},
		{"a module that is not there", "main.js", "./b.js", "./c.js", "has no c.js, imported by main.js"},
		{"a cycle", "b.js", "export", "import {x} from \"./main.js\";\nexport", "imports itself"},
		{"a name twice", "main.js", "b();", "const b = 1;", "both have a b"},
		{"a default export", "b.js", "export function", "export default function", "plain form"},
		{"an export list", "b.js", "export function b() {}", "function b() {}\nexport {b}", "plain form"},
		{"a star", "main.js", "import {b}", "import * as b", "plain form"},
		{"an import with another name", "main.js", "{b}", "{b as c}", "plain form"},
		{"a dynamic import", "main.js", "b();", "import(\"./b.js\");", "plain form"},
		{"text that ends a script", "main.js", "b();", "b(\"</SCRIPT>\");", "end or confuse"},
		{"text that opens a comment", "main.js", "b();", "b(\"<!--\");", "end or confuse"},
		{"text that opens a script", "main.js", "b();", "b(\"<script\");", "end or confuse"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			p := plainPage()
			old := string(p[tt.file].Data)
			if !strings.Contains(old, tt.from) {
				t.Fatalf("%s has no %s", tt.file, tt.from)
			}
			p[tt.file] = &fstest.MapFile{Data: []byte(strings.Replace(old, tt.from, tt.to, 1))}
			_, err := web.Bundle(p, nil)
			if err == nil || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("error %v, want one with %q", err, tt.want)
			}
		})
	}
}

// TestPage holds the page to its rules.
func TestPage(t *testing.T) {
	if _, err := web.Bundle(web.Page(), []byte("{}")); err != nil {
		t.Error(err)
	}
	size := 0
	inline := regexp.MustCompile(`(?i)\son[a-z]+\s*=\s*["']|\sstyle\s*=|javascript:|<iframe|<object|<embed|<base|<form[^>]*action`)
	unsafe := regexp.MustCompile(`\b(?:innerHTML|outerHTML|insertAdjacentHTML|document\.write|eval|new Function|srcdoc)\b`)
	err := fs.WalkDir(web.Page(), ".", func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		text, err := fs.ReadFile(web.Page(), path)
		size += len(text)
		if strings.HasSuffix(path, ".html") && inline.Match(text) {
			t.Errorf("%s has something inline: %s", path, inline.Find(text))
		}
		if strings.HasSuffix(path, ".js") && unsafe.Match(text) {
			t.Errorf("%s makes more than text of text: %s", path, unsafe.Find(text))
		}
		if strings.Contains(string(text), "://") && regexp.MustCompile(`(?:src|href|from|fetch\()\s*[=(]?\s*["']?https?://`).Match(text) {
			t.Errorf("%s loads something from elsewhere", path)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	if size > 200<<10 {
		t.Errorf("the page has %d bytes, which is above 200 KiB", size)
	}
}
