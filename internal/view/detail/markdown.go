package detail

import (
	"strings"
	"sync"

	"mcpwire/internal/text/lazyregexp"

	"github.com/yuin/goldmark"
	"github.com/yuin/goldmark/ast"
	"github.com/yuin/goldmark/extension"
	extast "github.com/yuin/goldmark/extension/ast"
	"github.com/yuin/goldmark/parser"
	"github.com/yuin/goldmark/text"
)

// A Node is a part of a Markdown document. HTML in the document is text.
type Node struct {
	// Type is "p", "h1"…"h6", "ul", "ol", "li", "quote", "pre", "hr", "table", "tr", "th", "td",
	// "em", "strong", "del", "code", "link", "image", "br" or "text".
	Type     string `json:"t"`
	Children []Node `json:"c,omitempty"`
	// Spans have the text of a "text", a "code" or a line of a "pre".
	Spans []Span `json:"s,omitempty"`
	// Lines are those of a "pre".
	Lines []Line `json:"lines,omitempty"`
	// Target is where a link or an image points to. Pages show it and do not follow it.
	Target string `json:"to,omitempty"`
}

const (
	maxMarkdown      = 32 << 10 // bytes of a document
	maxMarkdownDepth = 24
	maxMarkdownNodes = 4000
)

// markdownSign finds what plain text rarely has.
var markdownSign = lazyregexp.New("(?m)^(#{1,6} \\S|```|[-*+] \\S.*\\n[-*+] \\S|1\\. \\S.*\\n2\\. \\S|> \\S|\\|.*\\|[ \\t]*\\n\\|[ :|-]+\\|)|\\*\\*[^*\\s][^*\\n]*\\*\\*|\\[[^\\]\\n]+\\]\\(\\S+\\)")

// nested finds lines whose nesting takes a parser of Markdown very long.
var nested = lazyregexp.New(`(?m)^(?:[ \t]*(?:>|[-*+]|\d+[.)])[ \t]*){20}|[\[(*_~]{64}`)

// isMarkdown reports whether a text looks like Markdown.
func isMarkdown(s, mediaType string) bool {
	if len(s) > maxMarkdown || nested().MatchString(s) {
		return false
	}
	return strings.HasPrefix(strings.ToLower(mediaType), "text/markdown") || mediaType == "" && markdownSign().MatchString(s)
}

// markdown returns the parser: that of CommonMark, with tables.
var markdown = sync.OnceValue(func() parser.Parser {
	return goldmark.New(goldmark.WithExtensions(extension.Table, extension.Strikethrough)).Parser()
})

// parseMarkdown returns a document without its HTML and its links.
func parseMarkdown(source []byte) []Node {
	c := &converter{source: source}
	return c.children(markdown().Parse(text.NewReader(source)), 0)
}

// A converter converts the nodes of the parser.
type converter struct {
	source []byte
	nodes  int
}

func (c *converter) children(parent ast.Node, depth int) []Node {
	var list []Node
	for n := parent.FirstChild(); n != nil && c.nodes < maxMarkdownNodes; n = n.NextSibling() {
		c.nodes++
		if depth == maxMarkdownDepth {
			list = append(list, c.textNode(n.Kind().String()))
			break
		}
		list = c.appendNode(list, n, depth)
	}
	return list
}

func (c *converter) textNode(s string) Node {
	return Node{Type: "text", Spans: oneLine([]byte(s), len(s))}
}

func (c *converter) appendNode(list []Node, n ast.Node, depth int) []Node {
	node := Node{Type: "p"}
	switch n := n.(type) {
	case *ast.Text:
		list = append(list, c.textNode(string(n.Segment.Value(c.source))))
		if n.HardLineBreak() {
			return append(list, Node{Type: "br"})
		} else if n.SoftLineBreak() {
			return append(list, c.textNode(" "))
		}
		return list
	case *ast.String:
		return append(list, c.textNode(string(n.Value)))
	case *ast.RawHTML:
		var b strings.Builder
		for i := range n.Segments.Len() {
			s := n.Segments.At(i)
			b.Write(s.Value(c.source))
		}
		return append(list, c.textNode(b.String()))
	case *ast.AutoLink:
		url := string(n.URL(c.source))
		return append(list, Node{Type: "link", Children: []Node{c.textNode(url)}, Target: safeText(url)})
	case *ast.FencedCodeBlock, *ast.CodeBlock, *ast.HTMLBlock:
		return append(list, Node{Type: "pre", Lines: c.codeLines(n)})
	case *ast.CodeSpan:
		return append(list, Node{Type: "code", Children: c.children(n, depth+1)})
	case *ast.ThematicBreak:
		return append(list, Node{Type: "hr"})
	case *ast.TextBlock:
		return append(list, c.children(n, depth+1)...)
	case *ast.Heading:
		node.Type = "h" + string(rune('0'+n.Level))
	case *ast.Blockquote:
		node.Type = "quote"
	case *ast.List:
		node.Type = "ul"
		if n.IsOrdered() {
			node.Type = "ol"
		}
	case *ast.ListItem:
		node.Type = "li"
	case *ast.Emphasis:
		node.Type = "em"
		if n.Level > 1 {
			node.Type = "strong"
		}
	case *ast.Link:
		node.Type, node.Target = "link", safeText(string(n.Destination))
	case *ast.Image:
		node.Type, node.Target = "image", safeText(string(n.Destination))
	case *extast.Strikethrough:
		node.Type = "del"
	case *extast.Table:
		node.Type = "table"
	case *extast.TableHeader, *extast.TableRow:
		node.Type = "tr"
	case *extast.TableCell:
		node.Type = "td"
		if _, head := n.Parent().(*extast.TableHeader); head {
			node.Type = "th"
		}
	}
	node.Children = c.children(n, depth+1)
	return append(list, node)
}

// codeLines returns the lines of a block of code or HTML.
func (c *converter) codeLines(n ast.Node) []Line {
	s := newLineWriter(maxMarkdown)
	var b []byte
	for i := range n.Lines().Len() {
		l := n.Lines().At(i)
		b = append(b, l.Value(c.source)...)
	}
	if h, ok := n.(*ast.HTMLBlock); ok && h.HasClosure() {
		b = append(b, h.ClosureLine.Value(c.source)...)
	}
	s.writeProse(b)
	return s.finish()
}
