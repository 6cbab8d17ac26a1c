package main

import (
	"bytes"
	"errors"
	"fmt"
	"html"
	"path"
	"regexp"
	"strings"

	"github.com/alecthomas/chroma/v2"
	chromahtml "github.com/alecthomas/chroma/v2/formatters/html"
	"github.com/alecthomas/chroma/v2/lexers"
	"github.com/alecthomas/chroma/v2/styles"
	"github.com/yuin/goldmark"
	"github.com/yuin/goldmark/ast"
	"github.com/yuin/goldmark/extension"
	east "github.com/yuin/goldmark/extension/ast"
	"github.com/yuin/goldmark/parser"
	"github.com/yuin/goldmark/renderer"
	ghtml "github.com/yuin/goldmark/renderer/html"
	"github.com/yuin/goldmark/text"
	"github.com/yuin/goldmark/util"
)

// A document is the contents of a page.
type document struct {
	Title    string
	body     []byte
	headings []heading
	// links are the links to other places of the site, as the page has them.
	links []string
	// parts are the texts below each heading, for search. The first precedes all headings.
	parts []part
}

// A heading is a place to link to.
type heading struct {
	ID, Text string
	Level    int
}

// A part is the text below a heading.
type part struct {
	heading
	text string
}

// markdown converts documents. Their HTML is ours, so it may pass.
var markdown = goldmark.New(
	goldmark.WithExtensions(extension.NewTable(extension.WithTableCellAlignMethod(extension.TableCellAlignAttribute)), extension.Strikethrough),
	goldmark.WithParserOptions(parser.WithAutoHeadingID()),
	goldmark.WithRendererOptions(ghtml.WithUnsafe(), renderer.WithNodeRenderers(util.Prioritized(codeRenderer{}, 100))),
)

// fileComment names the file that the next block of a guide is.
var fileComment = regexp.MustCompile(`(?m)^<!-- file (\S+) -->$`)

// htmlLink is a link in an HTML element of a document.
var htmlLink = regexp.MustCompile(`\b(?:src|srcset|href)="([^"]+)"`)

// renderMarkdown renders a document. resolve returns the link in the site for a link of the
// document.
func renderMarkdown(source []byte, resolve func(link string) (string, error)) (document, error) {
	var d document
	var errs []error
	root := markdown.Parser().Parse(text.NewReader(source))
	current := part{}
	link := func(to []byte) []byte {
		url, err := resolve(string(to))
		if err != nil {
			errs = append(errs, err)
		}
		d.links = append(d.links, url)
		return []byte(url)
	}
	err := ast.Walk(root, func(n ast.Node, entering bool) (ast.WalkStatus, error) {
		if !entering {
			return ast.WalkContinue, nil
		}
		switch n := n.(type) {
		case *ast.Heading:
			id, _ := n.AttributeString("id")
			idText, _ := id.([]byte)
			h := heading{ID: string(idText), Text: plainText(n, source), Level: n.Level}
			if d.Title == "" && n.Level == 1 {
				d.Title = strings.TrimRight(h.Text, ".")
			}
			d.headings = append(d.headings, h)
			d.parts = append(d.parts, current)
			current = part{heading: h}
		case *ast.Link:
			n.Destination = link(n.Destination)
		case *ast.Image:
			n.Destination = link(n.Destination)
		case *ast.HTMLBlock:
			for i := range n.Lines().Len() {
				line := n.Lines().At(i)
				for _, m := range htmlLink.FindAllSubmatch(line.Value(source), -1) {
					link(m[1]) // pictures keep their paths
				}
			}
		case *ast.FencedCodeBlock:
			current.text += " " + string(n.Lines().Value(source))
		case *ast.Paragraph, *ast.TextBlock, *east.TableCell:
			current.text += " " + plainText(n, source)
		}
		return ast.WalkContinue, nil
	})
	d.parts = append(d.parts, current)
	for i, p := range d.parts {
		d.parts[i].text = strings.Join(strings.Fields(p.text), " ")
	}
	if d.Title == "" {
		errs = append(errs, errors.New("no title"))
	}
	var b bytes.Buffer
	errs = append(errs, err, markdown.Renderer().Render(&b, source, root))
	d.body = fileComment.ReplaceAll(b.Bytes(), []byte(`<div class="file">$1</div>`))
	return d, errors.Join(errs...)
}

// plainText returns the text below a node.
func plainText(n ast.Node, source []byte) string {
	var b strings.Builder
	for c := n.FirstChild(); c != nil; c = c.NextSibling() {
		switch c := c.(type) {
		case *ast.Text:
			b.Write(c.Segment.Value(source))
			if c.SoftLineBreak() {
				b.WriteByte(' ')
			}
		case *ast.String:
			b.Write(c.Value)
		default:
			b.WriteString(plainText(c, source))
		}
	}
	return html.UnescapeString(b.String())
}

// renderSource renders a source file.
func renderSource(name string, source []byte) (document, error) {
	var b bytes.Buffer
	fmt.Fprintf(&b, "<h1>%s</h1>\n", html.EscapeString(name))
	err := writeCode(&b, strings.TrimPrefix(path.Ext(name), "."), string(source))
	return document{Title: name, body: b.Bytes(), parts: []part{{text: name}}}, err
}

// codeFormatter marks code with classes, which codeStyles gives colors.
var codeFormatter = chromahtml.New(chromahtml.WithClasses(true))

func writeCode(w interface{ Write([]byte) (int, error) }, language, code string) error {
	lexer := lexers.Get(language)
	if lexer == nil {
		lexer = lexers.Fallback
	}
	tokens, err := chroma.Coalesce(lexer).Tokenise(nil, code)
	if err != nil {
		return err
	}
	return codeFormatter.Format(w, styles.Get("github"), tokens)
}

// codeStyles returns the style sheet of code, for both themes.
func codeStyles() []byte {
	var light, dark bytes.Buffer
	// Writing to a buffer does not fail.
	_ = codeFormatter.WriteCSS(&light, styles.Get("github"))
	_ = codeFormatter.WriteCSS(&dark, styles.Get("github-dark"))
	scoped := func(css, scope string) string {
		return strings.ReplaceAll(css, ".chroma", scope+" .chroma")
	}
	return fmt.Appendf(nil, "%s\n%s", scoped(light.String(), `[data-theme="light"]`), scoped(dark.String(), `[data-theme="dark"]`))
}

// A codeRenderer renders blocks of code.
type codeRenderer struct{}

func (codeRenderer) RegisterFuncs(r renderer.NodeRendererFuncRegisterer) {
	r.Register(ast.KindFencedCodeBlock, func(w util.BufWriter, source []byte, n ast.Node, entering bool) (ast.WalkStatus, error) {
		if !entering {
			return ast.WalkContinue, nil
		}
		block := n.(*ast.FencedCodeBlock)
		language := string(block.Language(source))
		fmt.Fprintf(w, "<div class=\"code code-%s\">", html.EscapeString(language))
		err := writeCode(w, language, string(block.Lines().Value(source)))
		w.WriteString("</div>\n")
		return ast.WalkSkipChildren, err
	})
}
