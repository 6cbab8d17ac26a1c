package doctor

import (
	"net/http"
	"strings"
	"testing"
)

func TestClassifyStray(t *testing.T) {
	for _, tt := range []struct{ line, want string }{
		{"\xef\xbb\xbf{}", "byte order mark"},
		{"\xff\xfe{\x00}\x00", "UTF-16"},
		{"", "an empty line"},
		{"Content-Length: 20", "Language Server"},
		{"<!DOCTYPE html>", "a web page"},
		{"[dotenv@17.2.3] injecting env (0) from .env", "dotenv"},
		{"npm warn exec The following package was not found", "npm or npx"},
		{"Need to install the following packages:", "npm or npx"},
		{"> my-server@1.0.0 start", "npm or npx"},
		{"Resolved 12 packages in 3ms", "package manager"},
		{"Traceback (most recent call last):", "Python traceback"},
		{`{"level":30,"msg":"listening"}`, "structured log"},
		{"\x1b[32mok\x1b[0m", "color codes"},
		{"2026-01-02T03:04:05Z started", "log line"},
		{"2026/01/02 03:04:05 started", "log line"},
		{"INFO: started", "log line"},
		{"[debug] started", "log line"},
		{"{", "several lines"},
		{"╭────╮", "a banner"},
		{"Server running", "console.log"},
		{"> quoted", "console.log"},
	} {
		if got := classifyOutput([]byte(tt.line)); !strings.Contains(got.what, tt.want) || got.hint == "" {
			t.Errorf("%q: %q, want %q", tt.line, got.what, tt.want)
		}
	}
}

// TestSaid shows what doctor quotes of a body that says more than its status.
func TestSaid(t *testing.T) {
	for _, tt := range []struct{ name, body, want string }{
		{"the status only", "Internal Server Error", ""},
		{"a page with the status only", "<html><head><title>403 Forbidden</title></head><center>nginx/1.27.3</center></html>", ""},
		{"a page", "<title>403 Forbidden</title><style>p { x: 1 }</style><p>CSRF verification &amp; failed.</p>", "403 Forbidden CSRF verification & failed."},
		{"a message", `{"message":"No such key"}`, "No such key"},
		{"an error of OAuth", `{"error":"invalid_token","error_description":"it has expired"}`, "it has expired"},
		{"an error object", `{"error":{"code":7,"message":"no such tenant"}}`, "no such tenant"},
		{"FastAPI", `{"detail":[{"loc":["query","workspace"],"msg":"Field required"},{"loc":["header","x-key"],"msg":"Field required"}]}`, "query workspace: Field required; header x-key: Field required"},
		{"a problem", `{"type":"https://example.com","title":"Unknown tenant","status":403}`, "Unknown tenant"},
		{"no message", `[1]`, ""},
	} {
		if got := (&webReply{body: []byte(tt.body)}).said(); got != tt.want {
			t.Errorf("%s: got %q; want %q", tt.name, got, tt.want)
		}
	}
	r := &webReply{header: http.Header{"Www-Authenticate": {`Bearer error="invalid_token", error_description="Jwt expired at 16:04"`}}}
	if got, want := r.refusal(), "Jwt expired at 16:04"; got != want {
		t.Errorf("refusal: got %q; want %q", got, want)
	}
}
