package main

import (
	"bytes"
	"embed"
	"encoding/json"
	"errors"
	"fmt"
	"html/template"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
)

// maxFile limits a file of the site, in bytes.
const maxFile = 16 << 20

//go:embed assets
var assets embed.FS

var pageTemplate = template.Must(template.ParseFS(assets, "assets/page.html"))

// first are the documents that the site begins with, in the order of the menu. Others are pages if
// one of these leads to them.
var first = []section{
	{"", []string{"README.md"}},
	{"Guides", []string{
		"doc/guide/README.md", "doc/guide/disconnected.md", "doc/guide/server.md", "doc/guide/host.md", "doc/guide/testing.md",
		"doc/guide/deploy.md", "doc/guide/eras.md", "doc/guide/from-go-sdk.md", "doc/guide/from-mcp-go.md", "doc/guide/security.md",
	}},
	{"Examples", []string{"examples/README.md"}},
	{"Reference", nil}, // what else is in doc
	{"Project", []string{"CHANGELOG.md", "CONTRIBUTING.md", "SECURITY.md", "doc/adr/README.md"}},
}

// decisions is the page that lists the decisions.
const decisions = "doc/adr/README.md"

// A section is a part of the menu.
type section struct {
	Title string
	names []string
}

// A page is one document or source file.
type page struct {
	// name is the path in the repository, and url the path in the site.
	name, url string
	document
}

// A site is what build writes.
type site struct {
	root  fs.FS
	pages map[string]*page // by name
	// files are other files that pages show, such as pictures.
	files map[string]bool
	queue []string
}

// build writes the site of the repository at root, and returns the number of pages.
func build(root, out string) (int, error) {
	s := &site{root: os.DirFS(root), pages: map[string]*page{}, files: map[string]bool{}}
	sections := slices.Clone(first)
	for i, sec := range sections {
		if sec.Title == "Reference" {
			names, err := fs.Glob(s.root, "doc/*.md")
			if err != nil {
				return 0, err
			}
			sections[i].names = names
		}
		s.queue = append(s.queue, sections[i].names...)
	}
	var errs []error
	for len(s.queue) > 0 {
		name := s.queue[0]
		s.queue = s.queue[1:]
		if s.pages[name] == nil {
			errs = append(errs, s.add(name))
		}
	}
	errs = append(errs, s.checkAnchors())
	if err := errors.Join(errs...); err != nil {
		return 0, err
	}
	return len(s.pages), s.write(out, sections)
}

// add renders a page and puts the pages that it links to into the queue.
func (s *site) add(name string) error {
	text, err := s.read(name)
	if err != nil {
		return err
	}
	p := &page{name: name, url: pageURL(name)}
	s.pages[name] = p
	if path.Ext(name) != ".md" {
		p.document, err = renderSource(name, text)
		return err
	}
	if name == decisions {
		list, err := s.listDecisions()
		if err != nil {
			return err
		}
		text = append(text, list...)
	}
	resolve := func(link string) (string, error) { return s.resolve(name, link) }
	if p.document, err = renderMarkdown(text, resolve); err != nil {
		return fmt.Errorf("%s: %w", name, err)
	}
	return nil
}

// listDecisions returns a list of the decisions, in Markdown.
func (s *site) listDecisions() (string, error) {
	names, err := fs.Glob(s.root, path.Join(path.Dir(decisions), "[0-9]*.md"))
	if err != nil {
		return "", err
	}
	var b strings.Builder
	b.WriteString("\n## All decisions\n\n")
	for _, name := range names {
		text, err := s.read(name)
		if err != nil {
			return "", err
		}
		title, _, _ := strings.Cut(string(text), "\n")
		title = strings.TrimPrefix(title, "# ")
		number, title, ok := strings.Cut(title, ". ")
		if !ok {
			return "", fmt.Errorf("%s: the title has no number", name)
		}
		fmt.Fprintf(&b, "- %s [%s](%s)\n", number, title, path.Base(name))
	}
	return b.String(), nil
}

func (s *site) read(name string) ([]byte, error) {
	info, err := fs.Stat(s.root, name)
	if err != nil {
		return nil, err
	}
	if info.Size() > maxFile {
		return nil, fmt.Errorf("%s has %d bytes; the limit is %d", name, info.Size(), maxFile)
	}
	return fs.ReadFile(s.root, name)
}

// pageURL returns the path of a page in the site.
func pageURL(name string) string {
	dir, base := path.Split(name)
	if base == "README.md" {
		return dir + "index.html"
	}
	if stem, ok := strings.CutSuffix(name, ".md"); ok {
		return stem + ".html"
	}
	return name + ".html"
}

// shown reports whether the site shows a file as it is.
func shown(name string) bool {
	return slices.Contains([]string{".svg", ".png", ".jpg", ".gif"}, path.Ext(name))
}

// resolve returns the link in the site for a link on the page from.
func (s *site) resolve(from, link string) (string, error) {
	if strings.Contains(link, "://") || strings.HasPrefix(link, "mailto:") {
		return link, nil
	}
	target, anchor, hasAnchor := strings.Cut(link, "#")
	if hasAnchor {
		anchor = "#" + anchor
	}
	if target == "" {
		return anchor, nil
	}
	name := path.Join(path.Dir(from), target)
	info, err := fs.Stat(s.root, name)
	if err != nil {
		return "", fmt.Errorf("link to %s: %w", link, err)
	}
	if shown(name) {
		s.files[name] = true
		return target, nil
	}
	if info.IsDir() {
		if name, err = s.indexOf(name); err != nil {
			return "", fmt.Errorf("link to %s: %w", link, err)
		}
	}
	s.queue = append(s.queue, name)
	return relative(pageURL(from), pageURL(name)) + anchor, nil
}

// indexOf returns the file that stands for a folder: its README, its documentation, or its program.
func (s *site) indexOf(dir string) (string, error) {
	for _, base := range []string{"README.md", "doc.go", "main.go"} {
		name := path.Join(dir, base)
		if _, err := fs.Stat(s.root, name); err == nil {
			return name, nil
		}
	}
	return "", fmt.Errorf("folder %s has no README.md, doc.go or main.go", dir)
}

// relative returns the relative path between two paths of the site.
func relative(from, to string) string {
	rel, err := filepath.Rel(filepath.FromSlash(path.Dir(from)), filepath.FromSlash(to))
	if err != nil {
		return to // both are relative, so this cannot be
	}
	return filepath.ToSlash(rel)
}

// checkAnchors returns an error for each link to a heading that does not exist.
func (s *site) checkAnchors() error {
	byURL := map[string]*page{}
	for _, p := range s.pages {
		byURL[p.url] = p
	}
	var errs []error
	for _, p := range s.pages {
		for _, link := range p.links {
			target, anchor, ok := strings.Cut(link, "#")
			if !ok || strings.Contains(target, "://") {
				continue
			}
			to := p
			if target != "" {
				to = byURL[path.Join(path.Dir(p.url), target)]
			}
			if to != nil && !slices.ContainsFunc(to.headings, func(h heading) bool { return h.ID == anchor }) {
				errs = append(errs, fmt.Errorf("%s: link to %s: there is no such heading", p.name, link))
			}
		}
	}
	return errors.Join(errs...)
}

// An entry is a line of the menu.
type entry struct {
	Title, URL string
	Current    bool
}

// A menu is a part of the menu on one page.
type menu struct {
	Title   string
	Entries []entry
}

// write writes the pages, the pictures, and the files of the site itself.
func (s *site) write(out string, sections []section) error {
	var order []*page // for the links at the end of a guide
	for _, sec := range sections {
		if sec.Title == "Guides" {
			for _, name := range sec.names {
				order = append(order, s.pages[name])
			}
		}
	}
	for _, p := range s.pages {
		data := map[string]any{
			"Title":    p.Title,
			"Root":     strings.Repeat("../", strings.Count(p.url, "/")),
			"Body":     template.HTML(p.body),
			"Headings": p.headings,
			"Menu":     s.menus(p, sections),
			"Name":     p.name,
		}
		if i := slices.Index(order, p); i >= 0 {
			if i > 0 {
				data["Previous"] = entry{Title: order[i-1].Title, URL: relative(p.url, order[i-1].url)}
			}
			if i+1 < len(order) {
				data["Next"] = entry{Title: order[i+1].Title, URL: relative(p.url, order[i+1].url)}
			}
		}
		var b bytes.Buffer
		if err := pageTemplate.Execute(&b, data); err != nil {
			return fmt.Errorf("%s: %w", p.name, err)
		}
		if err := writeFile(out, p.url, b.Bytes()); err != nil {
			return err
		}
	}
	for name := range s.files {
		data, err := s.read(name)
		if err != nil {
			return err
		}
		if err := writeFile(out, name, data); err != nil {
			return err
		}
	}
	for _, name := range []string{"site.css", "site.js", "theme.js", "icon.svg"} {
		data, err := assets.ReadFile("assets/" + name)
		if err != nil {
			return err
		}
		if name == "site.css" {
			data = append(data, codeStyles()...)
		}
		if err := writeFile(out, name, data); err != nil {
			return err
		}
	}
	index, err := s.index()
	if err != nil {
		return err
	}
	return writeFile(out, "search.js", index)
}

// menus returns the menu on a page.
func (s *site) menus(p *page, sections []section) []menu {
	var menus []menu
	for _, sec := range sections {
		m := menu{Title: sec.Title}
		for _, name := range sec.names {
			to := s.pages[name]
			m.Entries = append(m.Entries, entry{Title: to.Title, URL: relative(p.url, to.url), Current: to == p})
		}
		menus = append(menus, m)
	}
	return menus
}

// A found is a part of a page that search can find.
type found struct {
	URL     string `json:"u"`
	Page    string `json:"p"`
	Heading string `json:"h,omitempty"`
	Text    string `json:"t"`
}

// index returns the script with the texts to search. A script, unlike JSON, also loads from a
// folder.
func (s *site) index() ([]byte, error) {
	list := []found{}
	for _, p := range s.pages {
		for _, part := range p.parts {
			f := found{URL: p.url, Page: p.Title, Text: part.text}
			if part.ID != "" {
				f.URL += "#" + part.ID
				f.Heading = part.Text
			}
			list = append(list, f)
		}
	}
	slices.SortFunc(list, func(a, b found) int { return strings.Compare(a.URL, b.URL) })
	text, err := json.Marshal(list)
	if err != nil {
		return nil, err
	}
	return fmt.Appendf(nil, "window.searchIndex = %s;\n", text), nil
}

func writeFile(out, name string, data []byte) error {
	file := filepath.Join(out, filepath.FromSlash(name))
	if err := os.MkdirAll(filepath.Dir(file), 0o777); err != nil {
		return err
	}
	return os.WriteFile(file, data, 0o666)
}
