package taphttp

import (
	"net/http"
	"slices"
	"strings"

	"mcpwire/capture"
)

// hopByHop are the fields that are for the next hop only, besides those that Connection names (https://www.rfc-editor.org/rfc/rfc9110#section-7.6.1).
var hopByHop = []string{"Connection", "Proxy-Connection", "Keep-Alive", "Te", "Transfer-Encoding", "Upgrade", "Http2-Settings"}

// canonicalFields are the fields that net/http goes by when it writes a header, which it would not find in another spelling, and then write a second time. Others that
// it would add can be kept from it.
var canonicalFields = []string{"Content-Length", "Expect", "Host", "Trailer"}

// endToEnd returns what of a header is passed on. list has the spelling of the wire, if it is known.
func endToEnd(h http.Header, list []capture.Header) http.Header {
	drop := map[string]bool{}
	for _, name := range hopByHop {
		drop[name] = true
	}
	for _, v := range h["Connection"] {
		for name := range strings.SplitSeq(v, ",") {
			drop[http.CanonicalHeaderKey(strings.TrimSpace(name))] = true
		}
	}
	// What says how long the message is cannot be dropped by naming it.
	delete(drop, "Content-Length")
	delete(drop, "Host")
	out := make(http.Header, len(h))
	if list == nil {
		for name, values := range h {
			if !drop[name] {
				out[name] = slices.Clone(values)
			}
		}
	}
	for _, f := range list {
		name := http.CanonicalHeaderKey(f.Name)
		if _, read := h[name]; !read || drop[name] { // net/http has reasons to take some out
			continue
		}
		if !slices.Contains(canonicalFields, name) {
			name = f.Name
		}
		out[name] = append(out[name], f.Value)
	}
	if hasToken(h["Te"], "trailers") { // the only one that means something to those behind a proxy
		out["Te"] = []string{"trailers"}
	}
	return out
}

// hasToken reports whether a list of tokens has one.
func hasToken(values []string, token string) bool {
	for _, v := range values {
		for t := range strings.SplitSeq(v, ",") {
			if strings.EqualFold(strings.TrimSpace(t), token) {
				return true
			}
		}
	}
	return false
}

// mediaType returns the media type of a body without its parameters, in lower case.
func mediaType(h http.Header) string {
	t, _, _ := strings.Cut(h.Get("Content-Type"), ";")
	return strings.ToLower(strings.TrimSpace(t))
}

// isJSON also takes what some send in its place.
func isJSON(media string) bool {
	return media == "application/json" || strings.HasSuffix(media, "+json") || media == "text/json"
}

const (
	typeEvents = "text/event-stream"
	typeLines  = "application/x-ndjson"
)
