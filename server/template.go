package server

import (
	"bytes"
	"context"
	"fmt"
	"slices"

	"mcpwire/internal/era"
	"mcpwire/internal/uritemplate"
	"mcpwire/mcp"
)

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
	return t.def.AppendRevision(dst, f.Revision)
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
