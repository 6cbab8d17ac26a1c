package taphttp_test

import (
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"

	"mcpwire/cmd/internal/proxy/taphttp"
)

// TestMaxExchanges opens as many streams as there may be, and one more.
func TestMaxExchanges(t *testing.T) {
	const most = 3
	p := tapHandler(t, func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "text/event-stream")
		fmt.Fprint(w, ": open\n\ndata: {}\n\n")
		w.(http.Flusher).Flush()
		<-r.Context().Done()
	}, &taphttp.Options{MaxExchanges: most})
	get := func() *http.Response {
		t.Helper()
		resp, err := http.DefaultTransport.RoundTrip(must(http.NewRequestWithContext(t.Context(), "GET", p.url, nil)))
		if err != nil {
			t.Fatal(err)
		}
		return resp
	}
	for range most {
		resp := get()
		defer resp.Body.Close()
		if resp.StatusCode != http.StatusOK {
			t.Fatalf("status %d", resp.StatusCode)
		}
	}
	resp := get()
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err != nil || resp.StatusCode != http.StatusServiceUnavailable || !strings.Contains(string(text), "too many exchanges") {
		t.Errorf("one too many: status %d, %q, %v", resp.StatusCode, text, err)
	}
}
