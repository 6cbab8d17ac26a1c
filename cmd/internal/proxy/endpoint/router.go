package endpoint

import (
	"fmt"
	"net/http"
	"path"
	"strings"

	"mcpwire/cmd/internal/text/safe"
)

// A Router routes HTTP requests by their path. Its zero value has no paths.
type Router struct {
	mux   http.ServeMux
	taken map[string]bool
}

// NewRouter returns a router for an endpoint and the handlers of other paths. It returns an error
// if a path is invalid or occurs twice.
func NewRouter(endpoint string, h http.Handler, others map[string]http.Handler) (*Router, error) {
	r := &Router{}
	for to, other := range others {
		if err := r.handle(to, other); err != nil {
			return nil, err
		}
	}
	return r, r.handle(endpoint, h)
}

// handle registers the handler for a path. It returns an error if the path is invalid or already
// has a handler.
func (r *Router) handle(to string, h http.Handler) error {
	clean := path.Clean(to)
	if strings.HasSuffix(to, "/") && clean != "/" {
		clean += "/"
	}
	switch {
	case !strings.HasPrefix(to, "/") || to != clean || strings.ContainsAny(to, "{}?# \t"):
		return fmt.Errorf("%s is not a path such as /mcp", safe.Line(to))
	case r.taken[to]:
		return fmt.Errorf("%s is the path of something else", safe.Line(to))
	}
	if r.taken == nil {
		r.taken = map[string]bool{}
	}
	r.taken[to] = true
	r.mux.Handle(to, h)
	return nil
}

// ServeHTTP implements [http.Handler].
func (r *Router) ServeHTTP(w http.ResponseWriter, req *http.Request) { r.mux.ServeHTTP(w, req) }
