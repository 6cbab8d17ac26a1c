package streamable

import (
	"net/http"

	"mcpwire/auth"
)

// An asker is what a request says of who sends it.
type requester struct {
	versions  []string        // of the protocol, by the header; nil if there is none
	principal *auth.Principal // nil if it is nobody in particular
}

// requesterOf reads that. The principal is looked for only if somebody may have set one since the request came in.
func requesterOf(w http.ResponseWriter, r *http.Request) requester {
	a := requester{versions: r.Header[headerVersion]}
	if g, ok := w.(*trackingWriter); !ok || g.anonymousCtx != r.Context() {
		a.principal = auth.PrincipalOf(r.Context())
	}
	return a
}
