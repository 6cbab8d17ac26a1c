package web

import (
	"bytes"
	"crypto/sha256"
	"embed"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"net/http"
	"path"
	"regexp"
	"slices"
	"strings"
)

// embedded has the files of the page. They are served unchanged, without a build step.
//
//go:embed page
var embedded embed.FS

// indexName is the file of the page itself.
const indexName = "index.html"

// types returns the extensions of the page's files with their media types.
func types() map[string]string {
	return map[string]string{
		".html": "text/html; charset=utf-8",
		".js":   "text/javascript; charset=utf-8",
		".css":  "text/css; charset=utf-8",
		".svg":  "image/svg+xml",
		".png":  "image/png",
	}
}

// A page has the files of the page.
type page struct{ files map[string]pageFile }

type pageFile struct {
	body []byte
	mime string
	etag string
}

// loadPage reads the files of the page. It skips files with other extensions.
func loadPage(files fs.FS) (*page, error) {
	p, mimes := &page{files: map[string]pageFile{}}, types()
	entries, err := fs.ReadDir(files, ".")
	if err != nil {
		return nil, fmt.Errorf("ui: the page: %w", err)
	}
	for _, e := range entries {
		mime := mimes[path.Ext(e.Name())]
		if e.IsDir() || mime == "" {
			continue
		}
		body, err := fs.ReadFile(files, e.Name())
		if err != nil {
			return nil, fmt.Errorf("ui: the page: %w", err)
		}
		sum := sha256.Sum256(body)
		p.files[e.Name()] = pageFile{body: body, mime: mime, etag: `"` + hex.EncodeToString(sum[:12]) + `"`}
	}
	if _, ok := p.files[indexName]; !ok {
		return nil, errors.New("ui: the page has no " + indexName)
	}
	return p, nil
}

// serveFile responds with a file of the page.
func (s *Server) serveFile(w http.ResponseWriter, r *http.Request, name string) {
	f, ok := s.page.files[name]
	if !ok {
		writeError(w, http.StatusNotFound, "there is no such file")
		return
	}
	h := w.Header()
	h.Set("Content-Type", f.mime)
	// The next version of this program has other files at the same address.
	h.Set("Cache-Control", "no-cache")
	h.Set("ETag", f.etag)
	if strings.Contains(r.Header.Get("If-None-Match"), f.etag) {
		w.WriteHeader(http.StatusNotModified)
		return
	}
	if r.Method != http.MethodHead {
		w.Write(f.body) // errors mean that the client has disconnected
	}
}

// Lines that matter for the single-file page. The package comment has the rules. A file that
// breaks a rule is an error, so that no broken page is exported.
var (
	scriptTag      = regexp.MustCompile(`(?m)^[ \t]*<script type="module" src="/static/([\w.-]+\.js)"></script>[ \t]*\n?`)
	styleTag       = regexp.MustCompile(`(?m)^[ \t]*<link rel="stylesheet" href="/static/([\w.-]+\.css)"[ \t]*/?>[ \t]*\n?`)
	importLine     = regexp.MustCompile(`(?m)^import \{ ?[\w$]+(?:, ?[\w$]+)*,? ?\} from "\./([\w.-]+\.js)";?[ \t]*$\n?`)
	exportWord     = regexp.MustCompile(`(?m)^export ((?:async function|function|const|let|class)\b)`)
	leftoverImport = regexp.MustCompile(`(?m)^(?:import|export)\b.*$|\bimport\(.*$`)
	topLevelName   = regexp.MustCompile(`(?m)^(?:export )?(?:async function\*?|function\*?|const|let|class) +([\w$]+)`)
	remoteURL      = regexp.MustCompile(`url\( *["']?(?:[^d"' ]|d[^a])|@import`)
)

// A bundle is the page in a single file. The data belongs between its parts.
type bundle struct{ head, tail []byte }

// dataID is the id of the element with the page's data.
const dataID = "mcpwire-data"

// newBundle bundles the page in a single file.
func newBundle(p *page) (*bundle, error) {
	index := p.files[indexName].body
	scripts := scriptTag.FindAllSubmatchIndex(index, -1)
	if len(scripts) != 1 || bytes.Count(index, []byte("<script")) != 1 {
		return nil, errors.New("ui: the page must have one script, a module from /static/ on a line of its own")
	}
	at := scripts[0]
	code, err := joinModules(p, string(index[at[2]:at[3]]))
	if err != nil {
		return nil, err
	}
	style, rest, err := extractStyles(p, index[:at[0]])
	if err != nil {
		return nil, err
	}
	head, ok := bytes.CutPrefix(rest, []byte("<!doctype html>"))
	if !ok {
		return nil, errors.New("ui: the page must begin with <!doctype html>")
	}
	// The policy must precede everything that it applies to.
	where := bytes.Index(head, []byte("<meta charset"))
	if where < 0 {
		return nil, errors.New("ui: the page must name its charset by <meta charset")
	}
	where += bytes.IndexByte(head[where:], '>') + 1
	if bytes.Contains(index[:at[0]], []byte("<body")) && !bytes.Contains(head[where:], []byte("</head>")) {
		return nil, errors.New("ui: the page must close its head")
	}
	var b bundle
	b.head = slices.Concat([]byte("<!doctype html>"), head[:where], []byte("\n<meta http-equiv=\"Content-Security-Policy\" content=\""+exportPolicy(code, style)+"\">\n"),
		[]byte("<meta name=\"referrer\" content=\"no-referrer\">\n"), insertStyle(head[where:], style), []byte("<script type=\"application/json\" id=\""+dataID+"\">"))
	b.tail = slices.Concat([]byte("</script>\n<script type=\"module\">"), code, []byte("</script>\n"), index[at[1]:])
	return &b, nil
}

// insertStyle inserts the style sheet before the end of the head, or at the beginning if there is
// no </head>.
func insertStyle(head, style []byte) []byte {
	element := slices.Concat([]byte("\n<style>"), style, []byte("</style>\n"))
	if i := bytes.Index(head, []byte("</head>")); i >= 0 {
		return slices.Concat(head[:i], element, head[i:])
	}
	return slices.Concat(element, head)
}

// exportPolicy returns a policy that allows only this script and this style sheet.
func exportPolicy(code, style []byte) string {
	return "default-src 'none'; script-src " + hashSource(code) + "; style-src " + hashSource(style) + "; img-src blob: data:; media-src blob:; base-uri 'none'; form-action 'none'"
}

func hashSource(text []byte) string {
	sum := sha256.Sum256(text)
	return "'sha256-" + base64.StdEncoding.EncodeToString(sum[:]) + "'"
}

// extractStyles returns the concatenated style sheets of a piece of HTML, and the HTML without
// their elements.
func extractStyles(p *page, html []byte) (style, rest []byte, err error) {
	for _, m := range styleTag.FindAllSubmatch(html, -1) {
		f, ok := p.files[string(m[1])]
		switch {
		case !ok:
			return nil, nil, fmt.Errorf("ui: the page has no %s", m[1])
		case bytes.Contains(bytes.ToLower(f.body), []byte("</style")) || remoteURL.Match(f.body):
			return nil, nil, fmt.Errorf("ui: %s ends itself, or loads something", m[1])
		}
		style = append(append(style, f.body...), '\n')
	}
	rest = styleTag.ReplaceAll(html, nil)
	if bytes.Contains(rest, []byte(`rel="stylesheet"`)) || bytes.Contains(rest, []byte("<style")) {
		return nil, nil, errors.New("ui: each style sheet of the page must be a <link> to /static/ on a line of its own")
	}
	return style, rest, nil
}

// A joiner concatenates modules, each behind those that it imports.
type joiner struct {
	page *page
	// state is 1 while a module is visited and 2 after that.
	state map[string]int
	// names maps top-level names to their modules.
	names map[string]string
	out   bytes.Buffer
}

func joinModules(p *page, entry string) ([]byte, error) {
	j := joiner{page: p, state: map[string]int{}, names: map[string]string{}}
	j.out.WriteString("\"use strict\";\n")
	if err := j.add(entry); err != nil {
		return nil, err
	}
	return j.out.Bytes(), nil
}

func (j *joiner) add(name string) error {
	switch j.state[name] {
	case 1:
		return fmt.Errorf("ui: %s imports itself in the end", name)
	case 2:
		return nil
	}
	j.state[name] = 1
	f, ok := j.page.files[name]
	if !ok || path.Ext(name) != ".js" {
		return fmt.Errorf("ui: the page has no %s", name)
	}
	for _, m := range importLine.FindAllSubmatch(f.body, -1) {
		if err := j.add(string(m[1])); err != nil {
			return fmt.Errorf("%w, imported by %s", err, name)
		}
	}
	j.state[name] = 2
	return j.write(name, f.body)
}

func (j *joiner) write(name string, body []byte) error {
	body = importLine.ReplaceAll(body, nil)
	for _, m := range topLevelName.FindAllSubmatch(body, -1) {
		if other, ok := j.names[string(m[1])]; ok {
			return fmt.Errorf("ui: %s and %s both have a %s at the top level", other, name, m[1])
		}
		j.names[string(m[1])] = name
	}
	body = exportWord.ReplaceAll(body, []byte("$1"))
	if l := leftoverImport.Find(body); l != nil {
		return fmt.Errorf("ui: %s has an import or export that is not of the plain form: %.80q", name, l)
	}
	if low := strings.ToLower(string(body)); strings.Contains(low, "</script") || strings.Contains(low, "<script") || strings.Contains(low, "<!--") {
		return fmt.Errorf("ui: %s has text that would end or confuse a script inside a page", name)
	}
	j.out.WriteString("// " + name + "\n")
	j.out.Write(bytes.TrimRight(body, "\n"))
	j.out.WriteString("\n")
	return nil
}
