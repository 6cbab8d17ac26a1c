package endpoint

import (
	"net/http"
	"net/http/httptest"
	"testing"
)

// TestRouter shows that a path that http.ServeMux would panic about is an error, and the others are
// served.
func TestRouter(t *testing.T) {
	for _, tt := range []struct {
		path string
		ok   bool
	}{
		{"/mcp", true}, {"/", true}, {"/a/b", true}, {"/a/", true},
		{"", false}, {"mcp", false}, {"GET /mcp", false}, {"/{id}", false}, {"/a{", false}, {"/a//b", false}, {"/a/../b", false}, {"/a?b", false},
		{"/taken", false}, {"example.com/mcp", false},
	} {
		var r Router
		if err := r.handle("/taken", http.NotFoundHandler()); err != nil {
			t.Fatal(err)
		}
		err := r.handle(tt.path, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusTeapot) }))
		if (err == nil) != tt.ok {
			t.Errorf("%q: got %v", tt.path, err)
		}
		if !tt.ok {
			continue
		}
		w := httptest.NewRecorder()
		r.ServeHTTP(w, httptest.NewRequest("GET", tt.path, nil))
		if w.Code != http.StatusTeapot {
			t.Errorf("%q: status %d", tt.path, w.Code)
		}
	}
}
