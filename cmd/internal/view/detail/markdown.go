package detail

import (
	"strings"

	"mcpwire/internal/text/lazyregexp"

	"github.com/gomarkdown/markdown/ast"
	"github.com/gomarkdown/markdown/parser"
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
	maxOpenBrackets  = 16 // at once, in a paragraph
)

// markdownSign finds what plain text rarely has.
var markdownSign = lazyregexp.New("(?m)^(#{1,6} \\S|```|[-*+] \\S.*\\n[-*+] \\S|1\\. \\S.*\\n2\\. \\S|> \\S|\\|.*\\|[ \\t]*\\n\\|[ :|-]+\\|)|\\*\\*[^*\\s][^*\\n]*\\*\\*|\\[[^\\]\\n]+\\]\\(\\S+\\)")

func isMarkdown(s, mediaType string) bool {
	if len(s) > maxMarkdown || openBrackets(s) > maxOpenBrackets {
		return false
	}
	return strings.HasPrefix(strings.ToLower(mediaType), "text/markdown") || mediaType == "" && markdownSign().MatchString(s)
}

// openBrackets returns how many brackets are open at once in a paragraph of s. For each of them,
// the parser looks through the text after it again.
func openBrackets(s string) int {
	most, open := 0, 0
	for i := range len(s) {
		switch {
		case s[i] == '[':
			open++
			most = max(most, open)
		case s[i] == ']':
			open = max(open-1, 0)
		case s[i] == '\n' && i > 0 && s[i-1] == '\n':
			open = 0
		}
	}
	return most
}

// parseMarkdown returns a document, CommonMark with tables, without its HTML and its links. With
// the limits of isMarkdown, the parser takes time in proportion to the length. It nests at most 64
// levels.
func parseMarkdown(source []byte) []Node {
	document := parser.NewCommonMarkWithExtensions(parser.Tables | parser.Strikethrough).Parse(source)
	return new(converter).children(document, 0)
}

// A converter converts the nodes of the parser.
type converter struct{ nodes int }

func (c *converter) children(parent ast.Node, depth int) []Node {
	var list []Node
	for _, n := range parent.GetChildren() {
		if c.nodes >= maxMarkdownNodes {
			break
		}
		c.nodes++
		if depth == maxMarkdownDepth {
			return append(list, textNode("…"))
		}
		list = c.appendNode(list, n, depth)
	}
	return list
}

func textNode(s string) Node {
	return Node{Type: "text", Spans: oneLine([]byte(s), len(s))}
}

func (c *converter) appendNode(list []Node, n ast.Node, depth int) []Node {
	node := Node{Type: "p"}
	switch n := n.(type) {
	case *ast.Text:
		return append(list, textNode(strings.ReplaceAll(string(n.Literal), "\n", " ")))
	case *ast.HTMLSpan:
		return append(list, textNode(string(n.Literal)))
	case *ast.Hardbreak:
		return append(list, Node{Type: "br"})
	case *ast.CodeBlock:
		return append(list, preNode(n.Literal))
	case *ast.HTMLBlock:
		return append(list, preNode(n.Literal))
	case *ast.Code:
		return append(list, Node{Type: "code", Children: []Node{textNode(string(n.Literal))}})
	case *ast.HorizontalRule:
		return append(list, Node{Type: "hr"})
	case *ast.ReferenceDefinition:
		return list // links have their targets
	case *ast.Paragraph:
		if inTightList(n) {
			return append(list, c.children(n, depth+1)...)
		}
	case *ast.TableHeader, *ast.TableBody:
		return append(list, c.children(n, depth+1)...)
	case *ast.Heading:
		node.Type = "h" + string(rune('0'+n.Level))
	case *ast.BlockQuote:
		node.Type = "quote"
	case *ast.List:
		node.Type = "ul"
		if n.ListFlags&ast.ListTypeOrdered != 0 {
			node.Type = "ol"
		}
	case *ast.ListItem:
		node.Type = "li"
	case *ast.Emph:
		node.Type = "em"
	case *ast.Strong:
		node.Type = "strong"
	case *ast.Link:
		node.Type, node.Target = "link", safeText(string(n.Destination))
	case *ast.Image:
		node.Type, node.Target = "image", safeText(string(n.Destination))
	case *ast.Del:
		node.Type = "del"
	case *ast.Table:
		node.Type = "table"
	case *ast.TableRow:
		node.Type = "tr"
	case *ast.TableCell:
		node.Type = "td"
		if n.IsHeader {
			node.Type = "th"
		}
	default:
		if leaf := n.AsLeaf(); leaf != nil {
			return append(list, textNode(string(leaf.Literal)))
		}
	}
	node.Children = c.children(n, depth+1)
	return append(list, node)
}

// inTightList reports whether a paragraph is that of an item in a list without blank lines.
func inTightList(p *ast.Paragraph) bool {
	item, ok := p.GetParent().(*ast.ListItem)
	if !ok {
		return false
	}
	list, ok := item.GetParent().(*ast.List)
	return ok && list.Tight
}

// preNode returns a block of code or HTML.
func preNode(text []byte) Node {
	s := newLineWriter(maxMarkdown)
	s.writeProse(text)
	return Node{Type: "pre", Lines: s.finish()}
}
