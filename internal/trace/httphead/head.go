package httphead

import (
	"cmp"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"mcpwire/capture"
)

// ServerRequest returns the head of a request that a server has received.
func ServerRequest(r *http.Request) *capture.Request {
	return &capture.Request{Method: r.Method, URL: r.RequestURI, Proto: r.Proto, Remote: r.RemoteAddr, Headers: requestHeaders(r, r.Host)}
}

// ClientRequest returns the head of a request that a client is about to send. It lacks the fields
// that net/http adds when it sends the request, and Proto is always HTTP/1.1.
func ClientRequest(r *http.Request) *capture.Request {
	return &capture.Request{Method: cmp.Or(r.Method, http.MethodGet), URL: r.URL.RequestURI(), Proto: "HTTP/1.1", Headers: requestHeaders(r, cmp.Or(r.Host, r.URL.Host))}
}

func requestHeaders(r *http.Request, host string) []capture.Header {
	return Headers(r.Header, r.ProtoMajor == 2,
		capture.Header{Name: "Host", Value: host}, contentLength(r.Header, r.ContentLength),
		capture.Header{Name: "Transfer-Encoding", Value: strings.Join(r.TransferEncoding, ", ")}, capture.Header{Name: "Trailer", Value: TrailerNames(r.Trailer)})
}

// Response returns the head of a response that a client has received.
func Response(r *http.Response) *capture.Response {
	return &capture.Response{Status: r.StatusCode, Proto: r.Proto, Headers: Headers(r.Header, r.ProtoMajor == 2,
		contentLength(r.Header, r.ContentLength),
		capture.Header{Name: "Transfer-Encoding", Value: strings.Join(r.TransferEncoding, ", ")}, capture.Header{Name: "Trailer", Value: TrailerNames(r.Trailer)})}
}

// contentLength returns the Content-Length field if net/http has removed it from h.
func contentLength(h http.Header, n int64) capture.Header {
	if _, ok := h["Content-Length"]; ok || n <= 0 {
		return capture.Header{}
	}
	return capture.Header{Name: "Content-Length", Value: strconv.FormatInt(n, 10)}
}

// Headers returns the fields of first that have a value, then the fields of h, sorted by name.
// Names are in lower case if http2 is set.
func Headers(h http.Header, http2 bool, first ...capture.Header) []capture.Header {
	n := 1 // few names have several values
	for _, f := range first {
		if f.Value != "" {
			n++
		}
	}
	list := make([]capture.Header, 0, n+len(h))
	for _, f := range first {
		if f.Value != "" {
			list = append(list, f)
		}
	}
	sorted := len(list)
	for name, values := range h {
		for _, v := range values {
			list = append(list, capture.Header{Name: name, Value: v})
		}
	}
	slices.SortStableFunc(list[sorted:], func(a, b capture.Header) int { return strings.Compare(a.Name, b.Name) })
	if http2 { // HTTP/2 names are in lower case
		for i := range list[sorted:] {
			list[sorted+i].Name = strings.ToLower(list[sorted+i].Name)
		}
	}
	return list
}

// TrailerNames returns the value of the Trailer field that announces t.
func TrailerNames(t http.Header) string {
	if len(t) == 0 {
		return ""
	}
	return strings.Join(slices.Sorted(maps.Keys(t)), ", ")
}

// TargetURL returns the URL of a request with a target, such as "/mcp?x=y", to a server: a tap has
// the paths of the server's whole origin. It returns the URL of the server if the target is not
// valid. The origin of a target does not count.
func TargetURL(server, target string) string {
	base, err := url.Parse(server)
	to, targetErr := url.Parse(target)
	if server == "" || target == "" || err != nil || targetErr != nil {
		return server
	}
	return base.ResolveReference(&url.URL{Path: to.Path, RawPath: to.RawPath, RawQuery: to.RawQuery}).String()
}
