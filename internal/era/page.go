package era

import (
	"slices"
	"strings"

	"mcpwire/mcp"
)

const specificationURL = "https://modelcontextprotocol.io/specification/"

// PageURL returns the URL of a page of the specification, such as "basic/transports#stdio", in the
// last of some revisions; without any, in the latest one. It returns a complete URL as it is.
func PageURL(page string, revisions []mcp.Revision) string {
	if strings.HasPrefix(page, "https:") {
		return page
	}
	newest := mcp.LatestRevision
	if n := len(revisions); n > 0 {
		newest = revisions[n-1]
	}
	return specificationURL + newest.String() + "/" + page
}

// PageIn returns the URL in revision rev of what has a URL of [PageURL]. It returns url itself if
// rev is RevisionNone or not one of the revisions, or if url is outside the specification.
func PageIn(url string, revisions []mcp.Revision, rev mcp.Revision) string {
	path, ok := strings.CutPrefix(url, specificationURL)
	if !ok || rev == mcp.RevisionNone || len(revisions) > 0 && !slices.Contains(revisions, rev) {
		return url
	}
	_, path, _ = strings.Cut(path, "/")
	return specificationURL + rev.String() + "/" + pageIn(path, rev)
}

// movedPages maps modern pages to their legacy location.
var movedPages = map[string]string{
	"basic/versioning":                                         "basic/lifecycle#version-negotiation",
	"basic/patterns/cancellation":                              "basic/utilities/cancellation",
	"basic/transports/stdio":                                   "basic/transports#stdio",
	"basic/transports/stdio#shutdown":                          "basic/lifecycle#stdio",
	"basic/transports/streamable-http#security-warning":        "basic/transports#security-warning",
	"basic/transports/streamable-http#sending-messages":        "basic/transports#sending-messages-to-the-server",
	"basic/transports/streamable-http#protocol-version-header": "basic/transports#protocol-version-header",
}

// pageIn returns the location in revision rev of a page of a newer revision.
func pageIn(path string, rev mcp.Revision) string {
	if Of(rev).Modern {
		return path
	}
	if to, ok := movedPages[path]; ok {
		path = to
	} else if strings.HasPrefix(path, "basic/transports/streamable-http") {
		path = "basic/transports#streamable-http"
	}
	if rev != mcp.Revision20241105 {
		return path
	}
	switch page, place, _ := strings.Cut(path, "#"); {
	case page == "basic" && (place == "requests" || place == "responses" || place == "notifications"):
		return "basic/messages#" + place
	case page == "basic/transports" && place != "" && place != "stdio":
		return "basic/transports#http-with-sse"
	}
	return path
}
