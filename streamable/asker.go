package streamable

import (
	"net/http"

	"mcpwire/auth"
)

// An asker is what a request says of who sends it.
type asker struct {
	versions  []string        // of the protocol, by the header; nil if there is none
	principal *auth.Principal // nil if it is nobody in particular
}

// askerOf reads that. The principal is looked for only if somebody may have set one since the request came in.
func askerOf(w http.ResponseWriter, r *http.Request) asker {
	a := asker{versions: r.Header[headerVersion]}
	if g, ok := w.(*guardedWriter); !ok || g.anonymous != r.Context() {
		a.principal = auth.PrincipalOf(r.Context())
	}
	return a
}
