package era

import (
	"encoding/json"
	"fmt"
	"hash/maphash"
	"strings"

	"mcpwire/internal/json/jsonwire"
	"mcpwire/internal/text/clip"
	"mcpwire/mcp"
)

// An elementType is the type of the elements in a member of a result.
type elementType struct {
	member string
	// name is the member of an element that names it, or "".
	name  string
	check func(text []byte) error
	// needed says that a result without elements is useless.
	needed bool
}

// elementTypes has the results whose elements are independent of each other, by method.
var elementTypes = map[string]elementType{
	mcp.MethodToolsList:             {"tools", "name", checkElement[mcp.Tool], false},
	mcp.MethodPromptsList:           {"prompts", "name", checkElement[mcp.Prompt], false},
	mcp.MethodResourcesList:         {"resources", "uri", checkElement[mcp.Resource], false},
	mcp.MethodResourceTemplatesList: {"resourceTemplates", "uriTemplate", checkElement[mcp.ResourceTemplate], false},
	mcp.MethodPromptsGet:            {"messages", "", checkElement[mcp.PromptMessage], true},
	mcp.MethodResourcesRead:         {"contents", "uri", checkElement[mcp.ResourceContents], true},
	mcp.MethodToolsCall: {"content", "type", func(text []byte) error {
		_, err := mcp.ParseContent(text)
		return err
	}, true},
}

func checkElement[T any, P interface {
	*T
	json.Unmarshaler
}](text []byte) error {
	return P(new(T)).UnmarshalJSON(text)
}

// WithoutMalformed returns the result of a method without its malformed elements: tools, prompts,
// resources, templates, messages, contents and content blocks. left has an error for each of them,
// with its position and name. rest is result if there are none, and if nothing would be left of
// messages or content.
func WithoutMalformed(method string, result []byte) (rest []byte, left []error) {
	t, ok := elementTypes[method]
	if !ok || !IsObject(result) {
		return result, nil
	}
	kept := 0
	rest = Rewrite(nil, result, func(m *jsonwire.Members) []byte {
		v := m.Value()
		if !m.KeyIs(t.member) || !isArray(v) {
			return v
		}
		n := -1
		return RewriteArray(nil, v, func(element []byte) []byte {
			n++
			err := t.check(element)
			if err == nil {
				kept++
				return element
			}
			name := ""
			if IsObject(element) && t.name != "" {
				name = LookupString(element, t.name)
			}
			left = append(left, fmt.Errorf("%s[%d] %.100q: %w", t.member, n, clip.String(name, 100), err))
			return nil
		})
	}, nil)
	if left == nil || t.needed && kept == 0 && Lookup(result, "structuredContent") == nil {
		return result, left
	}
	return rest, left
}

// A Pages follows a client's way through the pages of one list. Some servers ignore cursors, and
// send the same page for ever. The zero value is at the beginning.
type Pages struct{ cursors, keys textSet }

// IsNew reports if no earlier item of the list had the key.
func (p *Pages) IsNew(key string) bool { return p.keys.add(key) }

// Full reports if the keys of the list are too many to be remembered.
func (p *Pages) Full() bool { return len(p.keys.sums) >= maxTexts }

// Restart goes back to the beginning. The items stay known.
func (p *Pages) Restart() { p.cursors = textSet{} }

// Repeats reports if the page after this one, with the cursor next, was requested before, so that
// the list has ended. Cursors are opaque, and "" is a valid one.
func (p *Pages) Repeats(next string) bool { return !p.cursors.add(next) }

// A textSet is a set of texts, which the server may choose to be long or to collide. It keeps 8
// bytes of each.
type textSet struct {
	seed maphash.Seed
	sums map[uint64]struct{}
}

// maxTexts limits a set. Further texts are not added.
const maxTexts = 1 << 20

// add adds a text and reports if it is new.
func (s *textSet) add(text string) bool {
	if s.sums == nil {
		s.seed, s.sums = maphash.MakeSeed(), make(map[uint64]struct{})
	}
	sum := maphash.String(s.seed, text)
	_, old := s.sums[sum]
	if !old && len(s.sums) < maxTexts {
		s.sums[sum] = struct{}{}
	}
	return !old
}

// IsUsualToolName reports whether a tool's name has the characters that the specification
// recommends, and at most maxLen of them
// (https://modelcontextprotocol.io/specification/2025-11-25/server/tools#tool-names).
func IsUsualToolName(name string, maxLen int) bool {
	unusual := func(c rune) bool {
		return !('a' <= c && c <= 'z' || 'A' <= c && c <= 'Z' || '0' <= c && c <= '9' || strings.ContainsRune("_-.", c))
	}
	return 1 <= len(name) && len(name) <= maxLen && !strings.ContainsFunc(name, unusual)
}
