package web_test

import (
	"crypto/sha256"
	"encoding/base64"
	"regexp"
	"strings"
	"testing"

	"mcpwire/cmd/internal/view/web"
)

// TestPage checks the files of the page against the rules in the package comment.
func TestPage(t *testing.T) {
	files := web.PageFiles()
	for _, tt := range []struct{ file, what, pattern string }{
		{"index.html", "has something inline", `(?i)\son[a-z]+\s*=\s*["']|\sstyle\s*=|<style|javascript:|<iframe|<object|<embed|<base|<form[^>]*action`},
		{"main.css", "loads something", `url\( *["']?(?:[^d"' ]|d[^a])|@import`},
		{"main.css", "has text that would end its element", `(?i)</style|<!--`},
		{"main.js", "loads another module", `(?m)^(?:import|export)\b|\bimport\(`},
		{"main.js", "has text that would end or confuse its element", `(?i)</?script|<!--`},
		{"main.js", "makes more than text of text", `\b(?:innerHTML|outerHTML|insertAdjacentHTML|document\.write|eval|new Function|srcdoc)\b`},
		{"", "loads something from elsewhere", `(?:src|href|from|fetch\()\s*[=(]?\s*["']?https?://`},
		{"", "has an end of line that browsers change, and its hash with it", `\r`},
	} {
		for name, text := range files {
			if m := regexp.MustCompile(tt.pattern).FindString(text); m != "" && (tt.file == "" || tt.file == name) {
				t.Errorf("%s %s: %q", name, tt.what, m)
			}
		}
	}
	size := 0
	for _, text := range files {
		size += len(text)
	}
	if size > 300<<10 {
		t.Errorf("the page has %d bytes, which is above 300 KiB", size)
	}
}

// TestExportedPage checks that the policy of an exported page precedes all that it is about, and
// allows the script and the style sheet that are there.
func TestExportedPage(t *testing.T) {
	text := web.ExportedPage([]byte("{\"x\":\"</script><!--<script>\u2028\"}"))
	files := web.PageFiles()
	policy := "default-src 'none'; script-src " + source(files["main.js"]) + "; style-src " + source(files["main.css"]) +
		"; img-src blob: data:; media-src blob:; base-uri 'none'; form-action 'none'"
	start := "<!doctype html>\n<html lang=\"en\" data-theme=\"auto\">\n<head>\n<meta charset=\"utf-8\">\n" +
		"<meta http-equiv=\"Content-Security-Policy\" content=\"" + policy + "\">\n<style>" + files["main.css"] + "</style>\n<meta "
	if !strings.HasPrefix(text, start) {
		t.Errorf("the page begins with %q, want %q", text[:min(len(text), len(start))], start)
	}
	end := `<script type="application/json" id="mcpwire-data">{"x":"\u003c/script\u003e\u003c!--\u003cscript\u003e\u2028"}</script>` +
		"\n<script type=\"module\">" + files["main.js"] + "</script>\n</body>\n</html>\n"
	if !strings.HasSuffix(text, end) {
		t.Errorf("the page ends with %q, want %q", text[max(0, len(text)-len(end)):], end)
	}
	for element, want := range map[string]int{"<script": 2, "</script": 2, "<style": 1, "</style": 1, "<link": 1, "<link rel=\"icon\" href=\"data:": 1, "<!--": 0, "/static/": 0} {
		if got := strings.Count(strings.ToLower(text), element); got != want {
			t.Errorf("%s is there %d times, want %d", element, got, want)
		}
	}
}

// source returns what a policy calls a text.
func source(text string) string {
	sum := sha256.Sum256([]byte(text))
	return "'sha256-" + base64.StdEncoding.EncodeToString(sum[:]) + "'"
}
