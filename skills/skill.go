package skills

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"net/url"
	"path"
	"reflect"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v4"

	"mcpwire/internal/text/lazyregexp"
)

const (
	extension     = "io.modelcontextprotocol/skills"
	listMethod    = "skills/list"
	getMethod     = "skills/get"
	readDirMethod = "resources/directory/read"

	manifest      = "SKILL.md"
	directoryType = "inode/directory"
	// dynamic stands for the list of files of a skill whose content changes.
	dynamic = "dynamic"
)

// The specification's limits of one skill.
const (
	maxFiles      = 512
	maxTotalBytes = 16 << 20
)

const (
	// maxFrontmatter limits the text of a frontmatter, in bytes.
	maxFrontmatter = 64 << 10
	// maxValues limits the values in a frontmatter, and so what aliases can multiply.
	maxValues = 10_000
	maxDepth  = 32
)

// ErrMismatch means that a file is not what the skill's entry says. The content must not be used.
// The skill may have changed: [Get] returns its current entry, which the user has not approved.
var ErrMismatch = errors.New("the file does not match the skill's entry")

// A Skill is what a server says about a skill, its entry.
type Skill struct {
	// URI is that of SKILL.md. It identifies the skill within its server.
	URI string
	// Name and Description are from the frontmatter. Several skills may have the same name.
	Name, Description string
	// Frontmatter is the frontmatter of SKILL.md, a JSON object.
	Frontmatter json.RawMessage
	// Files are all files of the skill, with SKILL.md. Nil means that the content is generated and
	// cannot be verified; hosts may decline such skills.
	Files []File
}

// A File is one file of a skill.
type File struct {
	// URI is that of the resource.
	URI string
	// Path is relative to the folder of the skill, such as references/FORMS.md.
	Path string
	// Digest is "sha256:" and 64 hexadecimal digits.
	Digest string
	// Size is the number of bytes.
	Size int64
}

// An entry is a Skill on the wire.
type entry struct {
	URI         string          `json:"uri"`
	Frontmatter json.RawMessage `json:"frontmatter"`
	Resources   json.RawMessage `json:"resources"`
}

// A fileEntry is a File on the wire.
type fileEntry struct {
	URI    string `json:"uri"`
	Digest string `json:"digest"`
	Size   *int64 `json:"size"`
}

var (
	namePattern   = lazyregexp.New(`^[a-z0-9]+(-[a-z0-9]+)*$`)
	digestPattern = lazyregexp.New(`^sha256:[0-9a-f]{64}$`)
)

// checkName returns an error for names that the specification of skills does not allow.
func checkName(name string) error {
	if len(name) > 64 || !namePattern().MatchString(name) {
		return fmt.Errorf("name %.100q: want 1 to 64 lowercase letters, digits and single hyphens", name)
	}
	return nil
}

// skill checks an entry of a server and returns the Skill.
func (e *entry) skill() (*Skill, error) {
	root, ok := strings.CutSuffix(e.URI, "/"+manifest)
	if !ok || !strings.Contains(root, "://") {
		return nil, fmt.Errorf("skill %.200q: want a URI that ends with /%s", e.URI, manifest)
	}
	var head struct{ Name, Description string }
	if err := json.Unmarshal(e.Frontmatter, &head); err != nil {
		return nil, fmt.Errorf("skill %.200q: frontmatter: %w", e.URI, err)
	}
	if err := checkName(head.Name); err != nil {
		return nil, fmt.Errorf("skill %.200q: frontmatter: %w", e.URI, err)
	}
	if path.Base(root) != head.Name {
		return nil, fmt.Errorf("skill %.200q: the last folder is not the name %s", e.URI, head.Name)
	}
	if head.Description == "" {
		return nil, fmt.Errorf("skill %.200q: no description", e.URI)
	}
	s := &Skill{URI: e.URI, Name: head.Name, Description: head.Description, Frontmatter: e.Frontmatter}
	if string(e.Resources) == strconv.Quote(dynamic) {
		return s, nil
	}
	var list []fileEntry
	if err := json.Unmarshal(e.Resources, &list); err != nil {
		return nil, fmt.Errorf("skill %.200q: resources: want a list of files, or %q", e.URI, dynamic)
	}
	if err := s.addFiles(root, list); err != nil {
		return nil, fmt.Errorf("skill %.200q: resources: %w", e.URI, err)
	}
	return s, nil
}

// addFiles checks the files of an entry and sets s.Files.
func (s *Skill) addFiles(root string, list []fileEntry) error {
	if len(list) > maxFiles {
		return fmt.Errorf("%d files, limit %d", len(list), maxFiles)
	}
	s.Files = make([]File, 0, len(list))
	seen := make(map[string]bool)
	var total int64
	for _, f := range list {
		escaped, ok := strings.CutPrefix(f.URI, root+"/")
		relative, err := url.PathUnescape(escaped)
		switch {
		case !ok || err != nil || !fs.ValidPath(relative) || relative == ".":
			return fmt.Errorf("%.200q is not in the folder of the skill", f.URI)
		case seen[relative]:
			return fmt.Errorf("%.200q is there twice", f.URI)
		case !digestPattern().MatchString(f.Digest):
			return fmt.Errorf("%.200q: digest %.100q: want sha256: and 64 hexadecimal digits", f.URI, f.Digest)
		case f.Size == nil || *f.Size < 0 || *f.Size > maxTotalBytes:
			return fmt.Errorf("%.200q: want a size from 0 to %d", f.URI, maxTotalBytes)
		}
		seen[relative] = true
		if total += *f.Size; total > maxTotalBytes {
			return fmt.Errorf("more than %d bytes in all", maxTotalBytes)
		}
		s.Files = append(s.Files, File{URI: f.URI, Path: relative, Digest: f.Digest, Size: *f.Size})
	}
	if !seen[manifest] {
		return fmt.Errorf("%s is missing", manifest)
	}
	return nil
}

// frontmatterOf returns the frontmatter of a SKILL.md as a JSON object.
func frontmatterOf(text []byte) (json.RawMessage, error) {
	text = bytes.TrimPrefix(text, []byte("\ufeff"))
	first, rest, _ := bytes.Cut(text, []byte("\n"))
	if string(bytes.TrimRight(first, " \t\r")) != "---" {
		return nil, errors.New("no frontmatter: the first line must be ---")
	}
	if len(rest) > maxFrontmatter {
		rest = rest[:maxFrontmatter]
	}
	end := -1
	for at := 0; at < len(rest); {
		line, _, found := bytes.Cut(rest[at:], []byte("\n"))
		if string(bytes.TrimRight(line, " \t\r")) == "---" {
			end = at
			break
		}
		if !found {
			break
		}
		at += len(line) + 1
	}
	if end < 0 {
		return nil, fmt.Errorf("the frontmatter does not end with --- within %d bytes", maxFrontmatter)
	}
	var document yaml.Node
	if err := yaml.Unmarshal(rest[:end], &document); err != nil {
		return nil, fmt.Errorf("frontmatter: %w", err)
	}
	if len(document.Content) != 1 || document.Content[0].Kind != yaml.MappingNode {
		return nil, errors.New("frontmatter: want a mapping")
	}
	values := 0
	value, err := plain(document.Content[0], &values, 0)
	if err != nil {
		return nil, fmt.Errorf("frontmatter: %w", err)
	}
	return json.Marshal(value)
}

// plain returns the value of a node as encoding/json has it. Values that JSON lacks, such as dates,
// are their text.
func plain(n *yaml.Node, values *int, depth int) (any, error) {
	if *values++; *values > maxValues || depth > maxDepth {
		return nil, fmt.Errorf("line %d: more than %d values, or more than %d levels", n.Line, maxValues, maxDepth)
	}
	switch n.Kind {
	case yaml.AliasNode:
		return plain(n.Alias, values, depth+1)
	case yaml.SequenceNode:
		list := make([]any, 0, len(n.Content))
		for _, c := range n.Content {
			v, err := plain(c, values, depth+1)
			if err != nil {
				return nil, err
			}
			list = append(list, v)
		}
		return list, nil
	case yaml.MappingNode:
		object := make(map[string]any, len(n.Content)/2)
		for i := 0; i+1 < len(n.Content); i += 2 {
			key := n.Content[i]
			if key.Kind != yaml.ScalarNode {
				return nil, fmt.Errorf("line %d: the key is no text", key.Line)
			}
			if _, twice := object[key.Value]; twice {
				return nil, fmt.Errorf("line %d: the key %.100q is there twice", key.Line, key.Value)
			}
			v, err := plain(n.Content[i+1], values, depth+1)
			if err != nil {
				return nil, err
			}
			object[key.Value] = v
		}
		return object, nil
	}
	switch n.ShortTag() {
	case "!!null", "!!bool", "!!int", "!!float":
		var v any
		if err := n.Decode(&v); err != nil {
			return nil, err
		}
		if _, err := json.Marshal(v); err != nil { // .inf and .nan
			return n.Value, nil
		}
		return v, nil
	}
	return n.Value, nil
}

// equalJSON reports whether two texts have the same content.
func equalJSON(a, b json.RawMessage) bool {
	var x, y any
	return json.Unmarshal(a, &x) == nil && json.Unmarshal(b, &y) == nil && reflect.DeepEqual(x, y)
}
