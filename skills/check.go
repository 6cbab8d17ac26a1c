package skills

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"net/url"
	"path"
	"slices"
	"strings"
	"unicode/utf8"

	"mcpwire/internal/text/lazyregexp"
)

// The limits of a frontmatter (https://agentskills.io/specification), in characters.
const (
	maxDescription   = 1024
	maxCompatibility = 500
)

// A Finding is something that is wrong with a file of a skill.
type Finding struct {
	// Path is that of the file, relative to the checked folder, with slashes.
	Path string
	// Message says what is wrong with it.
	Message string
}

// Check looks for faults of the skills in files, which are as for [Add]: every reason for which Add
// would return an error, files of skills that it ignores, and what else the specification of skills
// does not allow (https://agentskills.io/specification), such as a description of more than 1,024
// characters. It also reports the files that a SKILL.md links to and that its skill lacks.
//
// Check returns the skills that Add would serve, sorted by URI, and the findings, sorted by path.
// It returns an error if files cannot be read or has more than 1,000 skills.
func Check(files fs.FS) ([]*Skill, []Finding, error) {
	findings := []Finding{}
	report := func(name string, err error) error {
		if bad, ok := errors.AsType[*fs.PathError](err); ok {
			err = bad.Err // the name is reported already
		}
		findings = append(findings, Finding{name, err.Error()})
		return nil
	}
	c, err := load(files, report)
	if err != nil {
		return nil, nil, fmt.Errorf("skills: %w", err)
	}
	for _, root := range c.roots {
		main := c.files[uriOf(path.Join(root, manifest))]
		if main == nil {
			continue // that is a finding already
		}
		for _, message := range append(checkFields(main.contents.Text), c.checkLinks(root, main.contents.Text)...) {
			findings = append(findings, Finding{path.Join(root, manifest), message})
		}
	}
	if len(c.roots) == 0 {
		findings = append(findings, Finding{".", "no skills: no folder in it contains " + manifest})
	}
	slices.SortStableFunc(findings, func(a, b Finding) int { return cmp.Compare(a.Path, b.Path) })
	list := make([]*Skill, len(c.entries))
	for i, served := range c.entries {
		list[i] = served.skill
	}
	return list, findings, nil
}

// checkFields returns what is wrong with the frontmatter of a SKILL.md though Add accepts it.
func checkFields(text string) (messages []string) {
	frontmatter, err := frontmatterOf([]byte(text))
	if err != nil {
		return nil // that is a finding already
	}
	var fields map[string]any
	if err := json.Unmarshal(frontmatter, &fields); err != nil {
		return []string{"frontmatter: " + err.Error()}
	}
	for _, f := range []struct {
		name string
		max  int
	}{{"description", maxDescription}, {"compatibility", maxCompatibility}, {"license", 0}, {"allowed-tools", 0}} {
		value, ok := fields[f.name]
		if !ok {
			continue
		}
		s, isText := value.(string)
		n := utf8.RuneCountInString(s)
		switch {
		case !isText:
			messages = append(messages, f.name+": want text")
		case strings.TrimSpace(s) == "" && (s != "" || f.name != "description"): // Add needs one
			messages = append(messages, f.name+": it is blank")
		case f.max > 0 && n > f.max:
			messages = append(messages, fmt.Sprintf("%s: %d characters, limit %d", f.name, n, f.max))
		}
	}
	object, _ := fields["metadata"].(map[string]any) // Add rejects anything else
	for _, key := range slices.Sorted(maps.Keys(object)) {
		if _, isText := object[key].(string); !isText {
			messages = append(messages, fmt.Sprintf("metadata: the value of %.100q is not text: put it in quotes", key))
		}
	}
	return messages
}

var (
	linkPattern = lazyregexp.New(`\]\(\s*(?:<([^>]*)>|([^)\s]+))`)
	codePattern = lazyregexp.New("`[^`]*`")
)

// maxLinks limits the links of a SKILL.md that Check looks up.
const maxLinks = 1000

// checkLinks returns the relative links in a SKILL.md to files that the skill does not have.
func (c *catalog) checkLinks(root, text string) (messages []string) {
	seen, fence := map[string]bool{}, ""
	for line := range strings.Lines(text) {
		trimmed := strings.TrimLeft(line, " \t")
		if fence != "" {
			if strings.HasPrefix(trimmed, fence) {
				fence = ""
			}
			continue
		}
		if strings.HasPrefix(trimmed, "```") || strings.HasPrefix(trimmed, "~~~") {
			fence = trimmed[:3]
			continue
		}
		for _, m := range linkPattern().FindAllStringSubmatch(codePattern().ReplaceAllString(line, ""), -1) {
			u, err := url.Parse(m[1] + m[2])
			if err != nil || u.Scheme != "" || u.Host != "" || u.Path == "" || path.IsAbs(u.Path) || seen[u.Path] {
				continue
			}
			if seen[u.Path] = true; len(seen) > maxLinks {
				return messages
			}
			if !c.has(root, path.Clean(u.Path)) {
				messages = append(messages, fmt.Sprintf("it links to %.200s, which the skill does not have", u.Path))
			}
		}
	}
	return messages
}

// has reports whether a skill has a file or a folder.
func (c *catalog) has(root, name string) bool {
	if name == "." {
		return true
	}
	if !fs.ValidPath(name) {
		return false // outside of the skill
	}
	uri := uriOf(path.Join(root, name))
	if c.files[uri] != nil {
		return true
	}
	for other := range c.files {
		if strings.HasPrefix(other, uri+"/") {
			return true
		}
	}
	return false
}
