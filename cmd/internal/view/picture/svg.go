package picture

import (
	_ "embed"
	"fmt"
	"math"
	"strconv"
	"strings"
	"sync"

	"mcpwire/cmd/internal/trace"
	"mcpwire/internal/text/lazyregexp"
)

var (
	// colorsCSS has the colors of the page and of pictures: --name: light-dark(LIGHT, DARK).
	//go:embed colors.css
	colorsCSS string
	// pictureCSS has the rules of pictures, which use the colors by name.
	//go:embed picture.css
	pictureCSS string
)

var (
	colorPattern   = lazyregexp.New(`--([\w-]+): light-dark\((.*?), (.*?)\);`)
	varPattern     = lazyregexp.New(`var\(--([\w-]+)\)`)
	commentPattern = lazyregexp.New(`(?s)/\*.*?\*/\s*`)
)

// style returns the style sheet of a picture that stands alone. Programs that know no variables of
// CSS draw it too.
var style = sync.OnceValue(func() string {
	light, dark := map[string]string{}, map[string]string{}
	for _, m := range colorPattern().FindAllStringSubmatch(colorsCSS, -1) {
		light[m[1]], dark[m[1]] = m[2], m[3]
	}
	rules := strings.TrimSpace(commentPattern().ReplaceAllString(pictureCSS, ""))
	with := func(colors map[string]string) string {
		return varPattern().ReplaceAllStringFunc(rules, func(v string) string { return colors[varPattern().FindStringSubmatch(v)[1]] })
	}
	return with(light) + "\n@media (prefers-color-scheme: dark) {\n" + with(dark) + "\n}\n"
})

// serverColors is the number of colors of servers in colors.css.
const serverColors = 8

func serverClass(index int) string { return "p-srv" + strconv.Itoa(index%serverColors) }

// A canvas is an SVG that is being written.
type canvas struct{ b strings.Builder }

func (c *canvas) begin(width, height float64, title, description string) {
	fmt.Fprintf(&c.b, `<svg xmlns="http://www.w3.org/2000/svg" class="mcpwire-picture" viewBox="0 0 %s %s" width="%s" height="%s" role="img" aria-label="%s">`,
		number(width), number(height), number(width), number(height), escape(title))
	c.b.WriteString("\n<style>" + style() + "</style>\n<title>" + escape(title) + "</title>\n")
	if description != "" {
		c.b.WriteString("<desc>" + escape(description) + "</desc>\n")
	}
	c.rect("p-ground", 0, 0, width, height, 0)
}

func (c *canvas) end() string {
	c.b.WriteString("</svg>\n")
	return c.b.String()
}

func (c *canvas) rect(class string, x, y, w, h, radius float64) {
	fmt.Fprintf(&c.b, `<rect class="%s" x="%s" y="%s" width="%s" height="%s"`, class, number(x), number(y), number(max(w, 0)), number(max(h, 0)))
	if radius > 0 {
		fmt.Fprintf(&c.b, ` rx="%s"`, number(radius))
	}
	c.b.WriteString("/>\n")
}

func (c *canvas) line(class string, x1, y1, x2, y2 float64) {
	fmt.Fprintf(&c.b, `<line class="%s" x1="%s" y1="%s" x2="%s" y2="%s"/>`+"\n", class, number(x1), number(y1), number(x2), number(y2))
}

func (c *canvas) circle(class string, x, y, r float64) {
	fmt.Fprintf(&c.b, `<circle class="%s" cx="%s" cy="%s" r="%s"/>`+"\n", class, number(x), number(y), number(r))
}

func (c *canvas) path(class, d string) {
	fmt.Fprintf(&c.b, `<path class="%s" d="%s"/>`+"\n", class, d)
}

// text writes a text; anchor is "start", "middle" or "end". The text is escaped here.
func (c *canvas) text(class string, x, y float64, anchor, text string) {
	fmt.Fprintf(&c.b, `<text class="%s" x="%s" y="%s"`, class, number(x), number(y))
	if anchor != "start" {
		fmt.Fprintf(&c.b, ` text-anchor="%s"`, anchor)
	}
	c.b.WriteString(">" + escape(text) + "</text>\n")
}

// spans writes texts of different classes on one line.
func (c *canvas) spans(x, y float64, anchor string, parts ...span) {
	fmt.Fprintf(&c.b, `<text class="p-text" x="%s" y="%s" text-anchor="%s">`, number(x), number(y), anchor)
	first := true
	for _, p := range parts {
		if p.text == "" {
			continue
		}
		gap := ""
		if !first {
			gap = ` dx="6"`
		}
		first = false
		fmt.Fprintf(&c.b, `<tspan class="%s"%s>%s</tspan>`, p.class, gap, escape(p.text))
	}
	c.b.WriteString("</text>\n")
}

// A span is a text with a class.
type span struct{ class, text string }

// group begins a group; a click on it in the page shows the row of an event.
func (c *canvas) group(class, capture string, n uint64) {
	fmt.Fprintf(&c.b, `<g class="%s"`, class)
	if capture != "" && n > 0 {
		fmt.Fprintf(&c.b, ` data-capture="%s" data-n="%d"`, escape(capture), n)
	}
	c.b.WriteString(">\n")
}

func (c *canvas) endGroup() { c.b.WriteString("</g>\n") }

func number(v float64) string {
	return strconv.FormatFloat(float64(int64(math.Round(v*100)))/100, 'f', -1, 64)
}

var xmlEscaper = strings.NewReplacer("&", "&amp;", "<", "&lt;", ">", "&gt;", `"`, "&quot;")

// escape returns the text of a peer for a text or an attribute. Invisible characters are written as
// escape sequences.
func escape(s string) string { return xmlEscaper.Replace(trace.Escape(s)) }

// Widths of characters, in the size of the font. There is no font to measure, so these are those of
// common ones, rounded up.
const (
	sansWidth = 0.58
	boldWidth = 0.66
	monoWidth = 0.61
)

// textWidth returns about how wide a text is in a font of a size.
func textWidth(s string, size float64) float64 { return float64(trace.Width(s)) * size * sansWidth }

// boldTextWidth is like textWidth for bold texts.
func boldTextWidth(s string, size float64) float64 { return float64(trace.Width(s)) * size * boldWidth }

// fit returns the beginning of an escaped text that fits into a width.
func fit(s string, width, size float64) string {
	s = trace.Escape(s)
	n := int(width / (size * sansWidth))
	if n < 2 {
		return ""
	}
	return trace.Truncate(s, n)
}
