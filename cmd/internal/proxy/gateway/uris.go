package gateway

import (
	"bytes"
	"context"
	"regexp"
	"slices"
	"strings"

	"mcpwire/internal/era"
	"mcpwire/internal/json/jsonedit"
	"mcpwire/internal/json/jsonwire"
	"mcpwire/internal/proxy/bridge"
)

// noScheme is the scheme of the gateway's URIs for those of a server that have none.
const noScheme = "mcpw:"

// splitURI cuts a URI or URI template after its scheme, and after the "//" that may follow. head is
// "" if there is no scheme.
func splitURI(uri string) (head, rest string) {
	for i := range len(uri) {
		switch c := uri[i] | 0x20; {
		case c >= 'a' && c <= 'z':
		case i > 0 && uri[i] == ':':
			n := i + 1
			if strings.HasPrefix(uri[n:], "//") {
				n += 2
			}
			return uri[:n], uri[n:]
		case i > 0 && (uri[i] >= '0' && uri[i] <= '9' || strings.IndexByte("+-.", uri[i]) >= 0):
		default:
			return "", uri
		}
	}
	return "", uri
}

// isWeb reports if a head that splitURI returned is that of a URL, which clients may read
// themselves.
func isWeb(head string) bool {
	return strings.EqualFold(head, "http://") || strings.EqualFold(head, "https://")
}

// exposedURI returns the gateway's URI or URI template for one of an upstream: the name of the
// upstream and "+" follow the scheme, as in ui://NAME+chart.html. URLs stay as they are.
func exposedURI(upstream, uri string) string {
	head, rest := splitURI(uri)
	switch {
	case isWeb(head):
		return uri
	case head == "" || strings.HasPrefix(head, noScheme):
		head, rest = noScheme, uri
	}
	return head + upstream + "+" + rest
}

// ownURI returns the upstream and its own URI for one that exposedURI has returned, or nil.
// Libraries write the host of some URIs in lower case.
func (st *state) ownURI(uri string) (*upstream, string) {
	head, rest := splitURI(uri)
	name, rest, ok := strings.Cut(rest, "+")
	if !ok || isWeb(head) {
		return nil, ""
	}
	u := st.byName[name]
	if u == nil {
		i := slices.IndexFunc(st.upstreams, func(u *upstream) bool { return strings.EqualFold(u.name, name) })
		if i < 0 {
			return nil, ""
		}
		u = st.upstreams[i]
	}
	if head == noScheme {
		head = ""
	}
	return u, head + rest
}

// schemeOf returns the part of a URI or URI template that says which upstreams may have it: the
// scheme, with the host for URLs.
func schemeOf(uri string) string {
	head, rest := splitURI(uri)
	if isWeb(head) {
		if i := strings.IndexAny(rest, "/?#{"); i >= 0 {
			rest = rest[:i]
		}
		head += rest
	}
	return strings.ToLower(strings.TrimRight(head, "/"))
}

// ownerOfURI returns the upstream that a caller with a view means by a server's own URI or URI
// template, or nil. Servers do not list each URI, so one with the scheme may have it. If several
// may, it is the one that lists it; only a URL may be listed by several, because it means the same.
func (ix *index) ownerOfURI(view View, kind Kind, uri string) *upstream {
	var having, listing []*upstream
	for _, i := range ix.owners[schemeOf(uri)] {
		u := ix.st.upstreams[i]
		if view != nil && !view.Allows(kind, u.name, uri) {
			continue
		}
		having = append(having, u)
		for _, k := range []Kind{KindResource, KindTemplate} {
			if slices.ContainsFunc(ix.snaps[i].lists[k].items, func(it item) bool { return it.own == uri }) {
				listing = append(listing, u)
				break
			}
		}
	}
	if len(listing) > 0 {
		having = listing
	}
	if head, _ := splitURI(uri); len(having) == 1 || len(having) > 1 && isWeb(head) {
		return having[0]
	}
	return nil
}

// findResource returns the target of a URI, or of a URI template, that the caller may use. Clients
// may have a server's own URI from a text, which the gateway does not change.
func (g *Gateway) findResource(ctx context.Context, clientEra bridge.Era, kind Kind, uri string) (target, error) {
	ix := g.index(ctx, clientEra)
	view := ix.st.view(ctx)
	if u, own := ix.st.ownURI(uri); u != nil {
		if (view == nil || view.Allows(kind, u.name, own)) && !ix.hidesURI(u, kind, own) {
			return target{upstream: u, kind: kind, own: own}, nil
		}
		return target{}, resourceNotFound(clientEra, uri)
	}
	u := ix.ownerOfURI(view, kind, uri)
	if u == nil && ix.owners[schemeOf(uri)] == nil {
		ix = g.fresh(ctx, clientEra, nil, true)
		u = ix.ownerOfURI(ix.st.view(ctx), kind, uri)
	}
	if u == nil || ix.hidesURI(u, kind, uri) {
		return target{}, resourceNotFound(clientEra, uri)
	}
	return target{upstream: u, kind: kind, own: uri, bare: true}, nil
}

// hidesURI reports if Options.Pin hides the resource or the template with a URI.
func (ix *index) hidesURI(u *upstream, kind Kind, uri string) bool {
	snap := ix.snaps[slices.Index(ix.st.upstreams, u)]
	if snap == nil || snap.lists[kind].hidden == 0 {
		return false
	}
	return slices.ContainsFunc(snap.lists[kind].items, func(it item) bool { return it.hidden && it.own == uri })
}

// ownArguments returns a call with the server's own URIs where the arguments have the gateway's.
func ownArguments(frame []byte, upstream string) []byte {
	at := jsonedit.Locate(frame, "params", "arguments")
	if !at.Found() || !bytes.Contains(at.Of(frame), []byte(upstream+"+")) {
		return frame
	}
	// The name of an upstream has no special characters.
	exposed := regexp.MustCompile(`"([A-Za-z][A-Za-z0-9+.-]*:(?:\\?/\\?/)?)` + upstream + `\+`)
	return jsonedit.Splice(frame, at, exposed.ReplaceAllFunc(at.Of(frame), func(match []byte) []byte {
		head := match[:len(match)-len(upstream)-1]
		switch plain := strings.ReplaceAll(string(head[1:]), `\`, ""); {
		case isWeb(plain):
			return match
		case plain == noScheme:
			return head[:1]
		}
		return head
	}))
}

// hasURIs reports if a message may have URIs to expose.
func hasURIs(frame []byte) bool {
	return bytes.Contains(frame, []byte(`"uri"`)) || bytes.Contains(frame, []byte(`esourceUri"`))
}

// exposeURIs returns a message with the gateway's URIs in the result or the params.
func (s *scope) exposeURIs(frame []byte, part string) []byte {
	at := jsonedit.Locate(frame, part)
	if !at.Found() || frame[at.Start] != '{' {
		return frame
	}
	e := uriExposer{upstream: s.be.u.name}
	result := e.result(at.Of(frame), true)
	if !e.changed {
		return frame
	}
	return jsonedit.Splice(frame, at, result)
}

// A uriExposer replaces the URIs of an upstream.
type uriExposer struct {
	upstream string
	changed  bool
}

// result replaces the URIs in a result of tools/call, prompts/get or resources/read, or in the
// params of a request for sampling. With outer, it may also be a task or a result that contains
// these. Each level copies the text, so there are no more.
func (e *uriExposer) result(result []byte, outer bool) []byte {
	return era.Rewrite(nil, result, func(m *jsonwire.Members) []byte {
		v := m.Value()
		switch {
		case m.KeyIs("contents"), m.KeyIs("content"), m.KeyIs("messages"):
			return e.blocks(v, 0)
		case m.KeyIs("_meta"):
			return e.meta(v)
		case outer && m.KeyIs("result") && era.IsObject(v):
			return e.result(v, false)
		case outer && m.KeyIs("inputRequests"):
			return e.members(v, func(_ *jsonwire.Members, request []byte) []byte {
				return e.members(request, func(m *jsonwire.Members, v []byte) []byte {
					if m.KeyIs("params") && era.IsObject(v) {
						return e.result(v, false)
					}
					return v
				})
			})
		}
		return v
	}, nil)
}

// maxBlocks limits the levels of blocks: the result of a tool in a message has some.
const maxBlocks = 4

// blocks replaces the URIs in a block of content, a resource or a message, or in an array of them.
func (e *uriExposer) blocks(v []byte, depth int) []byte {
	if v[0] == '[' {
		return era.RewriteArray(nil, v, func(element []byte) []byte {
			if !era.IsObject(element) {
				return element
			}
			return e.blocks(element, depth)
		})
	}
	if depth == maxBlocks {
		return v
	}
	return e.members(v, func(m *jsonwire.Members, v []byte) []byte {
		switch {
		case m.KeyIs("uri"):
			return e.text(v)
		case m.KeyIs("resource"), m.KeyIs("content"):
			return e.blocks(v, depth+1)
		case m.KeyIs("_meta"):
			return e.meta(v)
		}
		return v
	})
}

// item replaces the URIs in the _meta of a tool.
func (e *uriExposer) item(tool []byte) []byte {
	return e.members(tool, func(m *jsonwire.Members, v []byte) []byte {
		if m.KeyIs("_meta") {
			return e.meta(v)
		}
		return v
	})
}

// meta replaces the URI of the page of an MCP App in the _meta of a tool or result.
func (e *uriExposer) meta(v []byte) []byte {
	return e.members(v, func(m *jsonwire.Members, v []byte) []byte {
		switch {
		case m.KeyIs("ui"):
			return e.members(v, func(m *jsonwire.Members, v []byte) []byte {
				if m.KeyIs("resourceUri") {
					return e.text(v)
				}
				return v
			})
		case m.KeyIs("ui/resourceUri"): // before version 1 of the extension
			return e.text(v)
		}
		return v
	})
}

// members replaces the values of the members of an object. It returns other values unchanged.
func (e *uriExposer) members(v []byte, change func(m *jsonwire.Members, v []byte) []byte) []byte {
	if !era.IsObject(v) {
		return v
	}
	return era.Rewrite(nil, v, func(m *jsonwire.Members) []byte { return change(m, m.Value()) }, nil)
}

// text replaces a URI.
func (e *uriExposer) text(v []byte) []byte {
	if v[0] != '"' {
		return v
	}
	was := jsonwire.Text(v)
	uri := exposedURI(e.upstream, was)
	if uri == was {
		return v
	}
	e.changed = true
	return jsonwire.AppendQuote(nil, uri)
}

// extensionApps is the name of the extension MCP Apps
// (https://github.com/modelcontextprotocol/ext-apps).
const extensionApps = "io.modelcontextprotocol/ui"

// appsKey is the key in the contexts of callers whose client declares MCP Apps.
type appsKey struct{}

// withApps returns ctx for a client with the capabilities.
func withApps(ctx context.Context, capabilities []byte) context.Context {
	if bytes.Contains(capabilities, []byte(extensionApps)) && era.Lookup(capabilities, "extensions", extensionApps) != nil {
		return context.WithValue(ctx, appsKey{}, true)
	}
	return ctx
}

// showsApps reports if the client of the caller declares MCP Apps.
func showsApps(ctx context.Context) bool { return ctx.Value(appsKey{}) != nil }

// findApps finds out if a server has MCP Apps, and which tools belong to one.
func (s *snapshot) findApps() {
	s.apps = era.Lookup(s.profile.Capabilities, "extensions", extensionApps) != nil ||
		slices.ContainsFunc(s.lists[KindResource].items, func(it item) bool { return schemeOf(it.own) == "ui:" })
	for i := range s.lists[KindTool].items {
		it := &s.lists[KindTool].items[i]
		if bytes.Contains(it.raw, []byte(`"ui`)) {
			it.app = era.Lookup(it.raw, "_meta", "ui") != nil || era.Lookup(it.raw, "_meta", "ui/resourceUri") != nil
		}
		s.apps = s.apps || it.app
	}
}

// appTool returns the tool that an MCP App means by the server's own name, or nil: an app knows no
// other, and hosts send what it calls. If several servers with apps have the tool, it is none.
func (ix *index) appTool(ctx context.Context, kind Kind, own string) (found *place) {
	if kind != KindTool || !showsApps(ctx) {
		return nil
	}
	for i, snap := range ix.snaps {
		if snap == nil || !snap.apps {
			continue
		}
		for j := range snap.lists[KindTool].items {
			if it := &snap.lists[KindTool].items[j]; it.own == own {
				if found != nil {
					return nil
				}
				found = &place{i, it}
			}
		}
	}
	return found
}
