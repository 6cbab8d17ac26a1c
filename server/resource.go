package server

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"mime"
	"path"
	"runtime/debug"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"mcpwire/internal/era"
	"mcpwire/internal/json/jsonwire"
	"mcpwire/internal/rpc"
	"mcpwire/internal/text/clip"
	"mcpwire/internal/text/uritemplate"
	"mcpwire/jsonrpc"
	"mcpwire/mcp"
)

// ErrNotFound reports that a resource does not exist. The function of a resource or a resource
// template returns or wraps it. The client gets the corresponding error of its revision. An
// [fs.ErrNotExist] has the same effect.
var ErrNotFound = errors.New("resource not found")

// ResourceOutput is the result type of a resource's function: a text, binary data, one or more
// contents with their own URI, MIME type or metadata, or the whole result. A missing URI and MIME
// type are those of the resource. A result without contents means that the resource doesn't exist:
// see [ErrNotFound].
//
// A result's TTLMs and CacheScope tell clients how long they may cache it, and whether a shared
// cache may serve it to other users. They default to [CacheOptions.ReadTTL] and
// [CacheOptions.ReadPublic].
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

// A readFunc appends the result of resources/read.
type readFunc func(c *Call, dst []byte) ([]byte, error)

// AddResource registers a resource at def.URI, which must be a URI with a scheme (RFC 3986); file:
// and custom schemes are allowed. read is called each time a client reads the resource; use
// [Static] for constant contents. def.Name is required: clients show it if Title is empty.
//
// An error of read is a failure of the server: the client gets an internal error, and the text is
// logged. If it wraps [ErrNotFound] or a [jsonrpc.Error], the client gets that error instead.
//
// AddResource fails for a duplicate URI (with [ErrDuplicate]) and for an invalid one. It may be
// called while the server runs: clients are notified of the change.
// (https://modelcontextprotocol.io/specification/2026-07-28/server/resources)
func AddResource[Out ResourceOutput](s *Server, def mcp.Resource, read func(ctx context.Context) (Out, error)) error {
	if read == nil {
		return registrationError(KindResource, def.URI, errNoFunc)
	}
	return s.addResource(def, func(c *Call, dst []byte) ([]byte, error) {
		out, err := read(c)
		if err != nil {
			return dst, readError(c, err)
		}
		return appendRead(c, dst, def.MIMEType, readResultOf(out))
	})
}

// Static returns a function for [AddResource] that always returns out.
func Static[Out ResourceOutput](out Out) func(context.Context) (Out, error) {
	return func(context.Context) (Out, error) { return out, nil }
}

func (s *Server) addResource(def mcp.Resource, read readFunc) error {
	def.Meta, def.Extra, def.Icons = bytes.Clone(def.Meta), bytes.Clone(def.Extra), slices.Clone(def.Icons)
	def.Annotations, def.Size = clonePointer(def.Annotations), clonePointer(def.Size)
	if err := cmp.Or(checkURI(def.URI), checkDefinition(def)); err != nil {
		return registrationError(KindResource, def.URI, err)
	}
	if err := s.resources.registered.add(&resource{entry: entry{key: def.URI}, def: def, read: read}); err != nil {
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

// checkDefinition checks the common members of resources and templates.
func checkDefinition(def mcp.Resource) error {
	if def.Name == "" {
		return errNoName
	}
	_, err := mcp.CheckContent(mcp.ResourceLink{Annotations: def.Annotations, Meta: def.Meta, Extra: def.Extra})
	return err
}

// RemoveResources removes resources and notifies clients of the change. It ignores unknown URIs.
// Running reads continue, and so do subscriptions to the resources.
func (s *Server) RemoveResources(uris ...string) {
	if s.resources.registered.remove(uris) {
		s.announce(resourcesChanged)
	}
}

// A resourceSet holds the resources and resource templates of a server, and answers resources/read.
type resourceSet struct {
	registered registry[*resource]
	templates  registry[*template]
	log        *slog.Logger
}

// at returns the resource registered at the URI, or nil. Percent-encoding of the URI does not
// matter.
func (rs *resourceSet) at(uri string) *resource {
	byKey := rs.registered.catalog().byKey
	if v := byKey[uri]; v != nil {
		return v
	}
	return byKey[uritemplate.Normalize(uri)]
}

// itemAt returns the resource at the URI or else the resource template that matches it.
func (rs *resourceSet) itemAt(uri string) (kind Kind, key string, ok bool) {
	if v := rs.at(uri); v != nil {
		return KindResource, v.key, true
	}
	if t, _ := rs.templateOf(uri); t != nil {
		return KindResourceTemplate, t.key, true
	}
	return "", "", false
}

// has reports whether a caller with the view can read the resource.
func (rs *resourceSet) has(v *View, uri string) bool {
	kind, key, ok := rs.itemAt(uri)
	return ok && v.shows(kind, key)
}

// hides reports whether the URI belongs to an item that the view hides. It returns false for
// unregistered URIs. If the view panics, which may be on a notifier's goroutine, it returns true.
func (rs *resourceSet) hides(v *View, uri string) (hidden bool) {
	if v == nil {
		return false
	}
	defer func() {
		if p := recover(); p != nil {
			rs.log.Error("a View panicked", "panic", p, "stack", string(debug.Stack()))
			hidden = true
		}
	}()
	kind, key, ok := rs.itemAt(uri)
	return ok && !v.shows(kind, key)
}

// read answers resources/read. A registered resource takes precedence over templates that
// match its URI. If the caller doesn't see it, no template replaces it, however the URI is encoded.
// (https://modelcontextprotocol.io/specification/2026-07-28/server/resources#reading-resources)
func (rs *resourceSet) read(c *Call, r *rpc.Request, dst []byte) ([]byte, error) {
	v, _ := r.Route.(*resource)
	if v == nil {
		var uri string
		var err error
		if v, uri, err = rs.param(r); err != nil {
			return dst, err
		}
		c.setName(uri)
	}
	if v != nil {
		c.setName(v.key)
		if !c.view.shows(KindResource, v.key) {
			return dst, c.results().notFound()
		}
		return invokeRead(c, v.read, r, dst)
	}
	t, vars := rs.templateOf(c.name)
	if t == nil || !c.view.shows(KindResourceTemplate, t.key) {
		return dst, c.results().notFound()
	}
	return invokeRead(c, func(c *Call, dst []byte) ([]byte, error) { return t.read(c, vars, dst) }, r, dst)
}

// invokeRead calls the function of a resource.
func invokeRead(c *Call, read readFunc, r *rpc.Request, dst []byte) ([]byte, error) {
	if err := c.session.srv.inputs.resume(c, r); err != nil {
		return dst, err
	}
	defer c.startTimer(c.session.srv.opts.Limits.HandlerTimeout)()
	out, err := read(c, dst)
	return c.session.srv.inputs.respond(c, r, dst, out, err)
}

// param returns params.uri and the resource registered there, or nil if a template may match it.
func (rs *resourceSet) param(r *rpc.Request) (v *resource, uri string, err error) {
	if uri, err = stringParam(r, "uri"); err != nil {
		return nil, "", err
	}
	if v = rs.at(uri); v != nil {
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

// readResultOf converts a function's output to a result, or nil.
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

// appendRead appends the result of a function.
func appendRead(c *Call, dst []byte, mimeType string, res *mcp.ReadResourceResult) ([]byte, error) {
	return c.results().resource(dst, mimeType, res, c.session.srv.readHints(), c.input.Load() != nil)
}

// readError converts the error of a resource's function to the error that is sent.
func readError(c *Call, err error) error {
	var e *jsonrpc.Error
	switch {
	case errors.As(err, &e) && e.Code != mcp.CodeResourceNotFound:
	case e != nil, errors.Is(err, ErrNotFound), errors.Is(err, fs.ErrNotExist):
		c.Logger().Debug("resource not found", "error", err)
		return c.results().notFound()
	}
	return err
}

// CacheFor returns a result for an [AddResource] function that clients may cache for ttl. With the
// scope [mcp.CacheScopePublic], shared caches may serve the result to all users.
func CacheFor[Out ResourceOutput](out Out, ttl time.Duration, scope mcp.CacheScope) *mcp.ReadResourceResult {
	res := readResultOf(out)
	if res == nil {
		return nil
	}
	cached := *res
	cached.TTLMs, cached.CacheScope = new(ttl.Milliseconds()), scope
	return &cached
}

// checkContents returns an error if the contents cannot be sent.
func checkContents(v mcp.ResourceContents) error {
	if err := checkURI(v.URI); err != nil {
		return fmt.Errorf("URI %q: %w", clip.String(v.URI, 100), err)
	}
	_, err := mcp.CheckContent(mcp.EmbeddedResource{Resource: v})
	return err
}

// Vars holds the variables of a resource template, without percent-encoding: {id} in
// db:///{table}/{id} is "a/b" for the URI db:///users/a%2Fb. A variable that the URI leaves out is
// absent. Only a variable with a star, as in {/path*}, can have more than one value.
//
// Clients control the variables. They may contain slashes, dots, NUL and any other UTF-8 character,
// so never join one to a file path: use [Files] or an [os.Root].
type Vars map[string][]string

// Get returns the first value of a variable, or "".
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

// AddResourceTemplate registers all resources whose URIs match def.URITemplate, an RFC 6570 URI
// template without repeated variables. read is called when a client reads one of them; [Call.Name]
// returns its URI. It should return [ErrNotFound] if the resource doesn't exist. Otherwise
// AddResourceTemplate is like [AddResource].
//
// These rules decide which URIs match:
//
//   - {id} is a string without reserved characters, unless they are percent-encoded. {+path} may
//     contain them. Neither is empty. A string in {/seg}, {?q}, {.ext} and the like may be left
//     out, with the character before it.
//   - {/seg*} and {?tag*} are lists; a variable without a star is not. Names in {?a,b} may come in
//     any order, each at most once. Other names do not match.
//   - A variable matches as much as it can, the first one first.
//
// If several templates match a URI, the one with the longest text outside of braces is used, then
// the one registered first. A resource that [AddResource] registered takes precedence over all
// templates. Unnecessary percent-encoding makes no difference. URIs longer than 8 KiB match no
// template.
//
// Completers suggest values for the variables, see [Complete].
func AddResourceTemplate[Out ResourceOutput](s *Server, def mcp.ResourceTemplate, read func(ctx context.Context, vars Vars) (Out, error), complete ...Completer) error {
	if read == nil {
		return registrationError(KindResourceTemplate, def.URITemplate, errNoFunc)
	}
	return s.addTemplate(def, complete, func(c *Call, vars Vars, dst []byte) ([]byte, error) {
		out, err := read(c, vars)
		if err != nil {
			return dst, readError(c, err)
		}
		return appendRead(c, dst, def.MIMEType, readResultOf(out))
	})
}

func (s *Server) addTemplate(def mcp.ResourceTemplate, complete []Completer, read func(c *Call, vars Vars, dst []byte) ([]byte, error)) error {
	t := &template{entry: entry{key: def.URITemplate}, def: def, read: read}
	t.def.Meta, t.def.Extra = bytes.Clone(def.Meta), bytes.Clone(def.Extra)
	t.def.Icons, t.def.Annotations = slices.Clone(def.Icons), clonePointer(def.Annotations)
	if err := t.prepare(complete); err != nil {
		return registrationError(KindResourceTemplate, def.URITemplate, err)
	}
	if err := s.resources.templates.add(t); err != nil {
		return err
	}
	s.completions.note(t.completers)
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

// RemoveResourceTemplates removes resource templates and notifies clients of the change. It ignores
// unknown ones. Running reads continue.
func (s *Server) RemoveResourceTemplates(uriTemplates ...string) {
	if s.resources.templates.remove(uriTemplates) {
		s.announce(resourcesChanged)
	}
}

// templateOf returns the template that matches the URI, and its variables, or nil. It ignores
// registered resources.
func (rs *resourceSet) templateOf(uri string) (best *template, vars Vars) {
	if len(uri) > maxURI {
		return nil, nil
	}
	valid := false
	uri = uritemplate.Normalize(uri)
	for _, t := range rs.templates.catalog().list {
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

// Files returns a function for [AddResourceTemplate] that reads files of a file system. The
// template must have a variable path, as in file:///srv/docs/{+path} or docs://all{/path*}:
//
//	root, err := os.OpenRoot("/srv/docs")
//	…
//	def := mcp.ResourceTemplate{URITemplate: "file:///srv/docs/{+path}", Name: "docs"}
//	err = server.AddResourceTemplate(srv, def, server.Files(root.FS()))
//
// Use the file system of an [os.Root] or one that isn't on a disk: an [os.DirFS] follows symbolic
// links out of its folder. Paths with NUL, backslashes, or elements that are ".", ".." or empty do
// not exist, however they are encoded. Neither do folders. A file that cannot be opened for any
// reason is reported as not found; the reason is logged.
//
// UTF-8 files are sent as text, others as a blob. The MIME type comes from the file's extension or
// else from the template. A file larger than 32 MiB is an error.
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

// readFile reads a file of limited size, even if the file grows meanwhile.
func readFile(files fs.FS, name string) ([]byte, error) {
	info, err := fs.Stat(files, name)
	if err != nil {
		return nil, openError(err)
	}
	if !info.Mode().IsRegular() { // opening a pipe could block
		return nil, fmt.Errorf("%s is not a file: %w", name, ErrNotFound)
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

// openError wraps err as ErrNotFound. A client must not learn whether a link leads out, a part of
// the path isn't a folder, or permission is missing.
func openError(err error) error { return fmt.Errorf("%w: %w", ErrNotFound, err) }

// maxURI is the longest URI, in bytes, that is matched with resource templates.
const maxURI = 8 << 10

var (
	errNoScheme = errors.New("it must be a URI that begins with a scheme, as file:///a does")
	errLongURI  = fmt.Errorf("it is longer than %d bytes", maxURI)
)

// checkURI returns an error unless the text is a URI with a scheme
// (https://www.rfc-editor.org/rfc/rfc3986, appendix A).
func checkURI(uri string) error {
	rest := uri[schemeEnd(uri):]
	if rest == uri {
		return errNoScheme
	}
	rest, fragment, _ := strings.Cut(rest, "#")
	authority := 0 // its end; only the authority may contain brackets
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

// schemeEnd returns the index after the colon of the scheme, or 0.
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
			return fmt.Errorf("it must be a URI: %q must be percent-encoded", string(r))
		}
	}
	return nil
}

func isHex(c byte) bool { return c >= '0' && c <= '9' || c|0x20 >= 'a' && c|0x20 <= 'f' }

// errResourceNotFound returns the error for an unknown resource, for a request of revision r.
func errResourceNotFound(uri string, r mcp.Revision) *jsonrpc.Error {
	e := &jsonrpc.Error{
		Code:    mcp.CodeResourceNotFound,
		Message: "resource not found",
		Data:    append(jsonwire.AppendQuote([]byte(`{"uri":`), uri), '}'),
	}
	if r.Modern() {
		e.Code = jsonrpc.CodeInvalidParams
	}
	return e
}
