package streamable_test

import (
	"net/http"
	"strings"
	"testing"
)

// TestMaxBytesHandler shows that a middleware's limit on bodies is reported as such, whether the
// length is declared or not.
func TestMaxBytesHandler(t *testing.T) {
	e := newEndpoint(t, nil, nil)
	e.serve(http.MaxBytesHandler(e.h, 1000))
	body, _ := callPost(1, "echo", `{"text":"`+strings.Repeat("x", 1000)+`"}`)
	for name, text := range map[string]string{
		"declared": rawPost(body),
		"chunked":  strings.Replace(rawPost("", "Transfer-Encoding: chunked"), "Content-Length: 0\n", "", 1) + "7d0\n" + strings.Repeat(" ", 0x7d0) + "\n0\n\n",
	} {
		_, r := e.raw(text)
		if got := e.response(r); got.status != 413 || !strings.Contains(got.body, "1000 bytes") {
			t.Errorf("%s: %d %s", name, got.status, got.body)
		}
	}
}
