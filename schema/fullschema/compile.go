package fullschema

import (
	"errors"
	"fmt"
	"net/url"
	"regexp"
	"strconv"
	"strings"

	"mcpwire/internal/json/jsonpointer"
	"mcpwire/internal/text/clip"
)

// errOutside means that a schema needs what is not part of it: another document or another dialect.
var errOutside = errors.New("not part of the schema, and nothing is fetched")

// A matcher is a compiled pattern.
type matcher interface{ MatchString(string) bool }

func compilePattern(source string) (matcher, error) { return regexp.Compile(source) }

// A document is a decoded text with schemas.
type document struct {
	root any
	// resources are the resources that begin in the document, by the JSON pointer to them.
	resources map[string]*resource
	// known are the JSON pointers of the schemas that keywords have.
	known map[string]bool
}

// A resource is a schema with a URL.
type resource struct {
	url   string
	draft draft
	doc   *document
	// pointer is where the resource begins in doc.
	pointer string
	// anchors are the JSON pointers of the schemas with a plain name.
	anchors map[string]string
	// dynamic are the anchors that $dynamicRef looks for.
	dynamic map[string]bool
	// recursive reports whether the resource has $recursiveAnchor.
	recursive bool
}

// A nodeKey is the place of a schema.
type nodeKey struct {
	doc     *document
	pointer string
}

// A node is a compiled schema.
type node struct {
	res *resource
	// rules are what the schema asserts. None means that every value is valid.
	rules []rule
}

// A compiler compiles a schema and what it refers to.
type compiler struct {
	// pattern compiles a pattern.
	pattern func(source string) (matcher, error)
	// trusted means that schemas are not validated against their metaschema.
	trusted   bool
	resources map[string]*resource
	nodes     map[nodeKey]*node
}

func newCompiler(pattern func(string) (matcher, error)) *compiler {
	return &compiler{pattern: pattern, resources: map[string]*resource{}, nodes: map[nodeKey]*node{}}
}

// compile compiles a decoded schema.
func (c *compiler) compile(root any) (*node, error) {
	if err := c.add(root, location, draft2020); err != nil {
		return nil, err
	}
	return c.finish(location)
}

// finish returns the node of a schema, after compiling all that dynamic references may lead to: the
// dynamic anchors of the resources that an evaluation may enter.
func (c *compiler) finish(url string) (*node, error) {
	n, err := c.reference(url)
	for done := 0; err == nil && done < len(c.nodes); {
		done = len(c.nodes)
		err = c.compileDynamic()
	}
	return n, err
}

func (c *compiler) compileDynamic() error {
	entered := map[*resource]bool{}
	for _, n := range c.nodes {
		entered[n.res] = true
	}
	for res := range entered {
		if res.recursive {
			if _, err := c.at(res.doc, res.pointer); err != nil {
				return err
			}
		}
		for name := range res.dynamic {
			if _, err := c.at(res.doc, res.anchors[name]); err != nil {
				return err
			}
		}
	}
	return nil
}

// add registers the resources of a document, and validates it against its metaschema.
func (c *compiler) add(root any, base string, d draft) error {
	doc := &document{root, map[string]*resource{}, map[string]bool{}}
	res, err := c.newResource(doc, "", base, root, d)
	if err != nil {
		return err
	}
	c.resources[base] = res // also under the URL that it has without its $id
	if err := c.validate(res.draft, root, ""); err != nil {
		return err
	}
	return c.walk(doc, res, "", root)
}

// newResource registers the resource that begins at a pointer of a document.
func (c *compiler) newResource(doc *document, at, base string, v any, d draft) (*resource, error) {
	if object, ok := v.(map[string]any); ok {
		if name, ok := object["$schema"].(string); ok {
			if d, ok = draftOf(name); !ok {
				return nil, fmt.Errorf("$schema %s: %w", clip.String(name, maxShown), errOutside)
			}
		}
		if id, ok := d.id(object); ok {
			resolved, err := resolve(base, id)
			if err != nil {
				return nil, fmt.Errorf("#%s/%s: %w", at, d.idKeyword(), err)
			}
			base = resolved
		}
	}
	if c.resources[base] != nil {
		return nil, fmt.Errorf("#%s: two schemas have the URL %s", at, clip.String(base, maxShown))
	}
	res := &resource{url: base, draft: d, doc: doc, pointer: at, anchors: map[string]string{}, dynamic: map[string]bool{}}
	c.resources[base] = res
	doc.resources[at] = res
	return res, nil
}

// id returns the URL that a schema object gives itself, without its fragment. A fragment alone is
// an anchor.
func (d draft) id(object map[string]any) (string, bool) {
	if _, ok := object["$ref"]; ok && d.refReplaces() {
		return "", false
	}
	id, _ := object[d.idKeyword()].(string)
	id, _, _ = strings.Cut(id, "#")
	return id, id != ""
}

// resolve returns the URL that ref means in a schema with the URL base.
func resolve(base, ref string) (string, error) {
	b, err := url.Parse(base)
	if err != nil {
		return "", err
	}
	r, err := url.Parse(ref)
	if err != nil {
		return "", fmt.Errorf("%q is not a URI reference", clip.String(ref, maxShown))
	}
	return b.ResolveReference(r).String(), nil
}

// walk registers the anchors of the schemas within v, and the resources.
func (c *compiler) walk(doc *document, res *resource, at string, v any) error {
	doc.known[at] = true
	object, ok := v.(map[string]any)
	if !ok {
		return nil
	}
	if _, ok := res.draft.id(object); ok && at != res.pointer {
		outer := res
		var err error
		if res, err = c.newResource(doc, at, outer.url, v, outer.draft); err != nil {
			return err
		}
		if res.draft != outer.draft {
			if err := c.validate(res.draft, v, at); err != nil {
				return err
			}
		}
	}
	if err := res.addAnchors(object, at); err != nil {
		return err
	}
	return res.draft.children(object, func(pointer string, child any) error { return c.walk(doc, res, at+pointer, child) })
}

// addAnchors registers the plain names of a schema object.
func (r *resource) addAnchors(object map[string]any, at string) error {
	var names []string
	switch {
	case r.draft >= draft2019:
		if name, ok := object["$anchor"].(string); ok {
			names = append(names, name)
		}
		if name, ok := object["$dynamicAnchor"].(string); ok && r.draft >= draft2020 {
			names = append(names, name)
			r.dynamic[name] = true
		}
		if on, _ := object["$recursiveAnchor"].(bool); on && at == r.pointer && r.draft == draft2019 {
			r.recursive = true
		}
	default:
		id, _ := object[r.draft.idKeyword()].(string)
		if _, ok := object["$ref"]; !ok {
			if _, name, _ := strings.Cut(id, "#"); name != "" && name[0] != '/' {
				names = append(names, name)
			}
		}
	}
	for _, name := range names {
		if other, ok := r.anchors[name]; ok && other != at {
			return fmt.Errorf("$anchor %q is defined twice", clip.String(name, maxShown))
		}
		r.anchors[name] = at
	}
	return nil
}

// reference returns the node of a schema with an absolute URL.
func (c *compiler) reference(target string) (*node, error) {
	base, fragment, _ := strings.Cut(target, "#")
	res := c.resources[base]
	if res == nil {
		base = canonicalURL(base)
		res = c.resources[base]
	}
	if res == nil {
		text, root, ok := metaschema(base)
		if !ok {
			return nil, errOutside
		}
		v, err := decode(text)
		if err != nil {
			return nil, err
		}
		if err := c.addMetaschema(v, root); err != nil {
			return nil, err
		}
		if res = c.resources[base]; res == nil {
			return nil, errOutside
		}
	}
	fragment, err := url.PathUnescape(fragment)
	if err != nil {
		return nil, err
	}
	if fragment != "" && fragment[0] != '/' {
		at, ok := res.anchors[fragment]
		if !ok {
			return nil, errors.New("anchor not found")
		}
		return c.at(res.doc, at)
	}
	return c.at(res.doc, res.pointer+fragment)
}

// addMetaschema adds a document that needs no validation.
func (c *compiler) addMetaschema(root any, base string) error {
	trusted := c.trusted
	c.trusted = true
	defer func() { c.trusted = trusted }()
	return c.add(root, base, draft2020)
}

// at returns the node of the schema at a JSON pointer.
func (c *compiler) at(doc *document, pointer string) (*node, error) {
	key := nodeKey{doc, pointer}
	if n := c.nodes[key]; n != nil {
		return n, nil
	}
	v, res, err := doc.find(pointer)
	if err != nil {
		return nil, err
	}
	if !doc.known[pointer] {
		if err := c.validate(res.draft, v, pointer); err != nil {
			return nil, err
		}
	}
	n := &node{res: res}
	c.nodes[key] = n
	k := &keywords{c: c, n: n, res: res, doc: doc, at: pointer}
	switch v := v.(type) {
	case bool:
		if !v {
			n.rules = []rule{func(e *evaluation, _ any) { e.fail("false schema") }}
		}
	case map[string]any:
		k.object = v
		if err := k.compile(); err != nil {
			return nil, err
		}
	}
	return n, nil
}

// find returns the schema at a JSON pointer, and the resource that it belongs to.
func (d *document) find(at string) (v any, res *resource, err error) {
	v, res = d.root, d.resources[""]
	path := ""
	if at != "" {
		for token := range strings.SplitSeq(at[1:], "/") {
			path += "/" + token
			var ok bool
			switch within := v.(type) {
			case map[string]any:
				v, ok = within[jsonpointer.Unescape(token)]
			case []any:
				i, err := strconv.Atoi(token)
				if ok = err == nil && i >= 0 && i < len(within); ok {
					v = within[i]
				}
			}
			if !ok {
				return nil, nil, errors.New("not found")
			}
			if inner := d.resources[path]; inner != nil {
				res = inner
			}
		}
	}
	if !isSchema(v) {
		return nil, nil, errors.New("not a schema")
	}
	return v, res, nil
}

// validate validates a schema, which is at a pointer, against the metaschema of its draft.
func (c *compiler) validate(d draft, v any, at string) error {
	if c.trusted {
		return nil
	}
	meta, err := compiledMetaschemas[d].compile()
	if err != nil {
		return err
	}
	problems := meta.validate(v)
	if len(problems) == 0 {
		return nil
	}
	p := problems[0].first()
	return fmt.Errorf("#%s: %s", at+p.pointer, p.message)
}
