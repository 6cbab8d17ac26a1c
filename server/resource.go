package server

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"mime"
	"path"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"mcpwire/internal/era"
	"mcpwire/internal/text/uritemplate"
	"mcpwire/jsonrpc"
	"mcpwire/mcp"
)

// ErrNotFound is what the function of a resource or of a resource template returns, or wraps, if there is nothing at the URI. The client is told so in the
// way of its revision. An [fs.ErrNotExist] does the same.
var ErrNotFound = errors.New("resource not found")

// ResourceOutput is what the function of a resource returns: a text, binary data, contents with a URI, a MIME type or metadata of their own, several
// of them, or the whole result. A URI and a MIME type that are missing are those of the resource. No contents at all means that there is no
// such resource: see [ErrNotFound].
//
// A result's TTLMs and CacheScope say how long clients may keep it, and whether a cache may serve it to other users; those that are missing are
// [Options.ReadTTL] and [Options.ReadPublic].
type ResourceOutput interface {
	string | []byte | mcp.ResourceContents | []mcp.ResourceContents | *mcp.ReadResourceResult
}

// A resource is a registered resource.
type resource struct {
	entry
	def  mcp.Resource
	read readFunc
}

func (r *resource) appendDefinition(dst []byte, f *era.Features) []byte {
	return mcp.Append(dst, &r.def, f.Revision)
}

// A reader appends the result of resources/read.
type readFunc func(c *Call, dst []byte) ([]byte, error)

// AddResource registers a resource at def.URI, which must be a URI with a scheme (RFC 3986); file: and custom schemes are as good as any. read is called
// whenever a client reads it; [Static] is for what never changes. The name is needed too: people see it if there is no title.
//
// An error of read is the server's failure: the client gets an internal error, and the text stays in the log. One that wraps [ErrNotFound] or a
// [jsonrpc.Error] is answered as what it is.
//
// AddResource fails on a URI that is taken (with [ErrDuplicate]) or is none. It may be called while the server runs: clients are told that the list has
// changed.
// (https://modelcontextprotocol.io/specification/2026-07-28/server/resources)
func AddResource[Out ResourceOutput](s *Server, def mcp.Resource, read func(ctx context.Context) (Out, error)) error {
	if read == nil {
		return registrationError(KindResource, def.URI, errNoFunc)
	}
	return s.addResource(def, func(c *Call, dst []byte) ([]byte, error) {
		out, err := read(c)
		if err != nil {
			return dst, c.readError(err)
		}
		return c.appendRead(dst, def.MIMEType, readResultOf(out))
	})
}

// Static returns a function for [AddResource] that always returns out.
func Static[Out ResourceOutput](out Out) func(context.Context) (Out, error) {
	return func(context.Context) (Out, error) { return out, nil }
}

func (s *Server) addResource(def mcp.Resource, read readFunc) error {
	def.Meta, def.Extra, def.Icons = bytes.Clone(def.Meta), bytes.Clone(def.Extra), slices.Clone(def.Icons)
	def.Annotations, def.Size = clonePointer(def.Annotations), clonePointer(def.Size)
	err := checkURI(def.URI)
	if err == nil {
		err = checkDefinition(def)
	}
	if err != nil {
		return registrationError(KindResource, def.URI, err)
	}
	if err := s.resources.add(&resource{entry: entry{key: def.URI}, def: def, read: read}); err != nil {
		return err
	}
	s.announce(resourcesChanged)
	return nil
}

func clonePointer[T any](p *T) *T {
	if p == nil {
		return nil
	}
	return new(*p)
}

// checkDefinition checks what resources and templates have in common.
func checkDefinition(def mcp.Resource) error {
	if def.Name == "" {
		return errNoName
	}
	_, err := mcp.CheckContent(mcp.ResourceLink{Annotations: def.Annotations, Meta: def.Meta, Extra: def.Extra})
	return err
}

// RemoveResources takes resources out and tells clients that the list has changed. URIs that are not registered are passed over. Reads under way go on, and
// clients that watch the resource go on doing so.
func (s *Server) RemoveResources(uris ...string) {
	if s.resources.remove(uris) {
		s.announce(resourcesChanged)
	}
}

// resourceAt returns the resource that is registered at the URI, however it is percent-encoded, or nil.
func (s *Server) resourceAt(uri string) *resource {
	byKey := s.resources.catalog().byKey
	if v := byKey[uri]; v != nil {
		return v
	}
	return byKey[uritemplate.Normalize(uri)]
}

// itemAt returns what the URI belongs to: a resource or, if there is none, a resource template.
func (s *Server) itemAt(uri string) (kind Kind, key string, ok bool) {
	if v := s.resourceAt(uri); v != nil {
		return KindResource, v.key, true
	}
	if t, _ := s.templateOf(uri); t != nil {
		return KindResourceTemplate, t.key, true
	}
	return 0, "", false
}

// hasResource reports whether the caller can read the resource.
func (s *Server) hasResource(v *View, uri string) bool {
	kind, key, ok := s.itemAt(uri)
	return ok && v.shows(kind, key)
}

// readResource answers resources/read. A registered resource comes before any template that its URI fits, and if the caller does not see what
// the URI belongs to, nothing else stands in for it. Nor does it help to write the URI in another way.
// (https://modelcontextprotocol.io/specification/2026-07-28/server/resources#reading-resources)
func (s *session) readResource(c *Call, r *jsonrpc.Request, dst []byte) ([]byte, error) {
	v, _ := r.Route.(*resource)
	if v == nil {
		var uri string
		var err error
		if v, uri, err = s.resourceParam(r); err != nil {
			return dst, err
		}
		c.setName(uri)
	}
	if v != nil {
		c.setName(v.key)
		if !c.view.shows(KindResource, v.key) {
			return dst, c.resourceNotFound()
		}
		return c.invokeRead(v.read, r, dst)
	}
	t, vars := s.srv.templateOf(c.name)
	if t == nil || !c.view.shows(KindResourceTemplate, t.key) {
		return dst, c.resourceNotFound()
	}
	return c.invokeRead(func(c *Call, dst []byte) ([]byte, error) { return t.read(c, vars, dst) }, r, dst)
}

func (c *Call) invokeRead(read readFunc, r *jsonrpc.Request, dst []byte) ([]byte, error) {
	if err := c.resumeInput(r); err != nil {
		return dst, err
	}
	defer c.startTimer()()
	out, err := read(c, dst)
	return c.respond(r, dst, out, err)
}

// resourceParam returns params.uri, and the resource that is registered there, or nil if it may be one of a template.
func (s *session) resourceParam(r *jsonrpc.Request) (v *resource, uri string, err error) {
	if uri, err = stringParam(r, "uri"); err != nil {
		return nil, "", err
	}
	if v = s.srv.resourceAt(uri); v != nil {
		return v, uri, nil
	}
	if len(uri) > maxURI {
		return nil, "", invalidParams("params.uri: %v", errLongURI)
	}
	if err := checkURI(uri); err != nil {
		return nil, "", invalidParams("params.uri: %v", err)
	}
	return nil, uri, nil
}

// resourceNotFound is the error for a URI that the caller cannot read.
func (c *Call) resourceNotFound() error { return mcp.ResourceNotFound(c.name, c.ex.Revision) }

// readError returns what is answered to the error of the function of a resource.
func (c *Call) readError(err error) error {
	var e *jsonrpc.Error
	switch {
	case errors.As(err, &e) && e.Code != mcp.CodeResourceNotFound:
	case e != nil, errors.Is(err, ErrNotFound), errors.Is(err, fs.ErrNotExist):
		c.Logger().Debug("resource not found", "error", err)
		return c.resourceNotFound()
	}
	return err
}

// readResultOf returns the result that a function meant, or nil.
func readResultOf[Out ResourceOutput](out Out) *mcp.ReadResourceResult {
	switch v := any(out).(type) {
	case string:
		return &mcp.ReadResourceResult{Contents: []mcp.ResourceContents{{Text: v}}}
	case []byte:
		if v == nil {
			v = []byte{}
		}
		return &mcp.ReadResourceResult{Contents: []mcp.ResourceContents{{Blob: v}}}
	case mcp.ResourceContents:
		return &mcp.ReadResourceResult{Contents: []mcp.ResourceContents{v}}
	case []mcp.ResourceContents:
		return &mcp.ReadResourceResult{Contents: v}
	case *mcp.ReadResourceResult:
		return v
	}
	return nil
}

// appendRead appends the result. mimeType is that of the resource.
func (c *Call) appendRead(dst []byte, mimeType string, res *mcp.ReadResourceResult) ([]byte, error) {
	if res == nil || len(res.Contents) == 0 {
		return dst, c.resourceNotFound()
	}
	out := *res
	out.Contents = slices.Clone(res.Contents)
	for i := range out.Contents {
		v := &out.Contents[i]
		if v.URI == "" {
			v.URI = c.name
		}
		if v.MIMEType == "" && v.URI == c.name {
			v.MIMEType = mimeType
		}
		if err := checkContents(*v); err != nil {
			return dst, c.invalidResult("contents[%d]: %v", i, err)
		}
	}
	if err := errors.Join(mcp.CheckMeta(out.Meta), checkExtra(out.Extra)); err != nil {
		return dst, c.invalidResult("%v", err)
	}
	if err := c.setCacheHints(&out); err != nil {
		return dst, err
	}
	meta := out.Meta
	out.Meta, out.ResultType = nil, ""
	return c.endWithMeta(mcp.Append(dst, &out, c.ex.Revision), meta), nil
}

// setCacheHints fills in how long clients may keep the result. One that depends on what the user answered is nobody else's, and no other time's.
func (c *Call) setCacheHints(res *mcp.ReadResourceResult) error {
	hints := c.session.srv.readHints()
	ttl, scope := hints.TTLMillis, mcp.CacheScopePrivate
	if hints.Public {
		scope = mcp.CacheScopePublic
	}
	if res.TTLMs != nil {
		ttl = max(*res.TTLMs, 0)
	}
	switch res.CacheScope {
	case "":
	case mcp.CacheScopePublic, mcp.CacheScopePrivate:
		scope = res.CacheScope
	default:
		return c.invalidResult(`the cache scope must be "public" or "private", not %q`, res.CacheScope)
	}
	if c.input.Load() != nil {
		ttl, scope = 0, mcp.CacheScopePrivate
	}
	res.TTLMs, res.CacheScope = &ttl, scope
	return nil
}

// CacheFor returns what an [AddResource] function returns if clients may keep it for a while. scope is [mcp.CacheScopePrivate], or [mcp.CacheScopePublic] if it is the
// same for all users and caches may serve it to any of them.
func CacheFor[Out ResourceOutput](out Out, ttl time.Duration, scope string) *mcp.ReadResourceResult {
	res := readResultOf(out)
	if res == nil {
		return nil
	}
	cached := *res
	cached.TTLMs, cached.CacheScope = new(ttl.Milliseconds()), scope
	return &cached
}

// checkContents returns an error if contents cannot be sent.
func checkContents(v mcp.ResourceContents) error {
	if err := checkURI(v.URI); err != nil {
		return fmt.Errorf("URI %q: %w", clip(v.URI), err)
	}
	_, err := mcp.CheckContent(mcp.EmbeddedResource{Resource: v})
	return err
}

// invalidResult is the error for what a handler returned and the protocol cannot carry: the server's fault, and not the caller's.
func (c *Call) invalidResult(format string, args ...any) error {
	return jsonrpc.Errorf(jsonrpc.CodeInternalError, "%s of %s: invalid result: %s", c.method, clip(c.name), fmt.Sprintf(format, args...))
}

// endWithMeta closes a result object that has been closed without its _meta.
func (c *Call) endWithMeta(dst, meta []byte) []byte {
	return c.session.srv.results.EndWithMeta(dst[:len(dst)-1], c.ex.Features, meta)
}

// Vars are the variables of a resource template, with their percent-encoding undone: {id} in db:///{table}/{id} is "a/b" for the URI db:///users/a%2Fb. A variable
// that a URI leaves out is absent. Only a variable with a star, as in {/path*}, can have more than one value.
//
// A variable is what a stranger chose. It may hold slashes, dots, NUL and everything else that UTF-8 has, so never join one to the path of a file: use
// [Files], or an [os.Root].
type Vars map[string][]string

// Get returns the value of a variable, the first if it has several, or "".
func (v Vars) Get(name string) string {
	if values := v[name]; len(values) > 0 {
		return values[0]
	}
	return ""
}

// A template is a registered resource template.
type template struct {
	entry
	def        mcp.ResourceTemplate
	pattern    *uritemplate.Template
	read       func(c *Call, vars Vars, dst []byte) ([]byte, error)
	completers completers
}

func (t *template) appendDefinition(dst []byte, f *era.Features) []byte {
	return mcp.Append(dst, &t.def, f.Revision)
}

// AddResourceTemplate registers all resources whose URIs fit def.URITemplate, a URI template of RFC 6570 in which no variable stands twice. read is called
// when a client reads one of them; [Call.Name] is its URI. It should return [ErrNotFound] if there is no such resource. The rest is as with [AddResource].
//
// Which URIs fit:
//
//   - {id} is a string without any of the characters that URIs give a meaning to, unless they are percent-encoded. {+path} may have them. Neither is ever empty. A
//     string in {/seg}, {?q}, {.ext} and the like may be left out, with the character before it.
//   - {/seg*} and {?tag*} are lists; a variable without a star is never one. Names in {?a,b} may come in any order, each once, and no other.
//   - A variable takes as much as it can, the first one first.
//
// If a URI fits several templates, that with the longest text outside of braces counts, and of those as long, the first that was registered. A resource
// that [AddResource] registered comes before all templates. It makes no difference which characters a URI has percent-encoded, if it need not have. URIs of
// more than 8 KiB fit no template.
//
// Completers suggest values for the variables, see [Complete].
func AddResourceTemplate[Out ResourceOutput](s *Server, def mcp.ResourceTemplate, read func(ctx context.Context, vars Vars) (Out, error), complete ...Completer) error {
	if read == nil {
		return registrationError(KindResourceTemplate, def.URITemplate, errNoFunc)
	}
	return s.addTemplate(def, complete, func(c *Call, vars Vars, dst []byte) ([]byte, error) {
		out, err := read(c, vars)
		if err != nil {
			return dst, c.readError(err)
		}
		return c.appendRead(dst, def.MIMEType, readResultOf(out))
	})
}

func (s *Server) addTemplate(def mcp.ResourceTemplate, complete []Completer, read func(c *Call, vars Vars, dst []byte) ([]byte, error)) error {
	t := &template{entry: entry{key: def.URITemplate}, def: def, read: read}
	t.def.Meta, t.def.Extra = bytes.Clone(def.Meta), bytes.Clone(def.Extra)
	t.def.Icons, t.def.Annotations = slices.Clone(def.Icons), clonePointer(def.Annotations)
	if err := t.prepare(complete); err != nil {
		return registrationError(KindResourceTemplate, def.URITemplate, err)
	}
	if err := s.templates.add(t); err != nil {
		return err
	}
	s.noteCompleters(t.completers)
	s.announce(resourcesChanged)
	return nil
}

func (t *template) prepare(complete []Completer) (err error) {
	if t.pattern, err = uritemplate.Parse(t.key); err != nil {
		return err
	}
	if prefix := t.pattern.Prefix(); prefix != "" && schemeEnd(prefix) == 0 {
		return errNoScheme
	}
	if err := checkDefinition(mcp.Resource{Name: t.def.Name, Annotations: t.def.Annotations, Meta: t.def.Meta, Extra: t.def.Extra}); err != nil {
		return err
	}
	t.completers, err = newCompleters(t.pattern.Names(), complete)
	if err != nil {
		return fmt.Errorf("variables: %w", err)
	}
	return nil
}

// RemoveResourceTemplates takes resource templates out and tells clients that the list has changed. What is not registered is passed over. Reads under way
// go on.
func (s *Server) RemoveResourceTemplates(uriTemplates ...string) {
	if s.templates.remove(uriTemplates) {
		s.announce(resourcesChanged)
	}
}

// templateOf returns the template that the URI belongs to, and the variables, or nil. It does not look at the resources.
func (s *Server) templateOf(uri string) (best *template, vars Vars) {
	if len(uri) > maxURI {
		return nil, nil
	}
	valid := false
	uri = uritemplate.Normalize(uri)
	for _, t := range s.templates.catalog().list {
		if best != nil && t.pattern.LiteralLen() <= best.pattern.LiteralLen() {
			continue
		}
		got, ok := t.pattern.Match(uri)
		if ok && !valid {
			if valid = checkURI(uri) == nil; !valid {
				return nil, nil
			}
		}
		if ok {
			best, vars = t, got
		}
	}
	return best, vars
}

// maxFile is the largest file that Files reads, in bytes.
const maxFile = 32 << 20

// Files returns a function for [AddResourceTemplate] that reads the files of a file system. The template has a variable path, as in
// file:///srv/docs/{+path} or docs://all{/path*}:
//
//	root, err := os.OpenRoot("/srv/docs")
//	…
//	def := mcp.ResourceTemplate{URITemplate: "file:///srv/docs/{+path}", Name: "docs"}
//	err = server.AddResourceTemplate(srv, def, server.Files(root.FS()))
//
// Use the file system of an [os.Root], or one that is not on a disk: an [os.DirFS] follows symbolic links to wherever they lead. Paths with NUL, backslashes,
// or elements that are ., .. or empty are those of no file, however they are encoded. Nor are folders files. A file that cannot be opened, for whatever reason,
// is answered as one that does not exist; the log says why.
//
// What is UTF-8 is sent as text, all else as a blob. The MIME type is that of the file's extension or, if it is unknown, of the template. A file of
// more than 32 MiB is an error.
func Files(files fs.FS) func(ctx context.Context, vars Vars) (mcp.ResourceContents, error) {
	return func(_ context.Context, vars Vars) (contents mcp.ResourceContents, err error) {
		name := strings.Join(vars["path"], "/")
		if !fs.ValidPath(name) || strings.ContainsAny(name, "\\\x00") {
			return contents, fmt.Errorf("path %q: %w", name, ErrNotFound)
		}
		data, err := readFile(files, name)
		if err != nil {
			return contents, err
		}
		contents.MIMEType = mime.TypeByExtension(path.Ext(name))
		if utf8.Valid(data) {
			contents.Text = string(data)
		} else {
			contents.Blob = data
		}
		return contents, nil
	}
}

// readFile reads a file that is not too large, even if it grows meanwhile.
func readFile(files fs.FS, name string) ([]byte, error) {
	info, err := fs.Stat(files, name)
	if err != nil {
		return nil, openError(err)
	}
	if !info.Mode().IsRegular() { // to open a pipe could take for ever
		return nil, fmt.Errorf("%s is no file: %w", name, ErrNotFound)
	}
	f, err := files.Open(name)
	if err != nil {
		return nil, openError(err)
	}
	defer f.Close()
	data, err := io.ReadAll(io.LimitReader(f, maxFile+1))
	if err != nil {
		return nil, err
	}
	if len(data) > maxFile {
		return nil, jsonrpc.Errorf(jsonrpc.CodeInternalError, "the file has more than %d bytes", maxFile)
	}
	return data, nil
}

// openError says that there is no file: whether a link leads out, a part of the path is no folder or permission is missing is nothing to tell a stranger.
func openError(err error) error { return fmt.Errorf("%w: %w", ErrNotFound, err) }

// maxURI is the longest URI, in bytes, that is held against the resource templates. A longer one is that of no resource but a registered one.
const maxURI = 8 << 10

var (
	errNoScheme = errors.New("it must be a URI that begins with a scheme, as file:///a does")
	errLongURI  = fmt.Errorf("it is longer than %d bytes", maxURI)
)

// checkURI returns an error unless the text is a URI with a scheme (https://www.rfc-editor.org/rfc/rfc3986, appendix A).
func checkURI(uri string) error {
	rest := uri[schemeEnd(uri):]
	if rest == uri {
		return errNoScheme
	}
	rest, fragment, _ := strings.Cut(rest, "#")
	authority := 0 // where it ends: brackets may stand in it and nowhere else
	if strings.HasPrefix(rest, "//") {
		if authority = strings.IndexAny(rest[2:], "/?") + 2; authority < 2 {
			authority = len(rest)
		}
	}
	for _, part := range []struct{ text, also string }{{rest[:authority], "[]"}, {rest[authority:], ""}, {fragment, ""}} {
		if err := checkURIChars(part.text, part.also); err != nil {
			return err
		}
	}
	return nil
}

// schemeEnd returns the index behind the colon of the scheme, or 0 if there is none.
func schemeEnd(uri string) int {
	for i := 0; i < len(uri); i++ {
		switch c := uri[i]; {
		case c|0x20 >= 'a' && c|0x20 <= 'z':
		case c == ':' && i > 0:
			return i + 1
		case i == 0 || (c < '0' || c > '9') && c != '+' && c != '-' && c != '.':
			return 0
		}
	}
	return 0
}

func checkURIChars(s, also string) error {
	for i := 0; i < len(s); i++ {
		c := s[i]
		switch {
		case c|0x20 >= 'a' && c|0x20 <= 'z', c >= '0' && c <= '9', strings.IndexByte("-._~:/?@!$&'()*+,;=", c) >= 0, strings.IndexByte(also, c) >= 0:
		case c == '%' && i+2 < len(s) && isHex(s[i+1]) && isHex(s[i+2]):
			i += 2
		default:
			r, _ := utf8.DecodeRuneInString(s[i:])
			return fmt.Errorf("it must be a URI: %q cannot stand there unless it is percent-encoded", string(r))
		}
	}
	return nil
}

func isHex(c byte) bool { return c >= '0' && c <= '9' || c|0x20 >= 'a' && c|0x20 <= 'f' }
