package cli

import (
	"fmt"
	"net/http"
	"path"
	"strings"
)

// A router routes HTTP requests by their path. Its zero value has no paths.
type router struct {
	mux   http.ServeMux
	taken map[string]bool
}

// newRouter returns a router for an endpoint and the handlers of other paths. It returns an error
// if a path is invalid or occurs twice.
func newRouter(endpoint string, h http.Handler, others map[string]http.Handler) (*router, error) {
	r := &router{}
	for to, other := range others {
		if err := r.handle(to, other); err != nil {
			return nil, err
		}
	}
	return r, r.handle(endpoint, h)
}

// handle registers the handler for a path. It returns an error if the path is invalid or already
// has a handler.
func (r *router) handle(to string, h http.Handler) error {
	clean := path.Clean(to)
	if strings.HasSuffix(to, "/") && clean != "/" {
		clean += "/"
	}
	switch {
	case !strings.HasPrefix(to, "/") || to != clean || strings.ContainsAny(to, "{}?# \t"):
		return fmt.Errorf("%s is not a path such as /mcp", safeLine(to))
	case r.taken[to]:
		return fmt.Errorf("%s is the path of something else", safeLine(to))
	}
	if r.taken == nil {
		r.taken = map[string]bool{}
	}
	r.taken[to] = true
	r.mux.Handle(to, h)
	return nil
}

// ServeHTTP implements [http.Handler].
func (r *router) ServeHTTP(w http.ResponseWriter, req *http.Request) { r.mux.ServeHTTP(w, req) }
