package main

import (
	"fmt"
	"html"
	"slices"
	"strconv"
	"strings"
	"time"
)

const (
	cellWidth  = 8.4 // of a character of the font, in pixels
	cellHeight = 18
	margin     = 14
	titleBar   = 30
	fontSize   = 14
	background = "#12161b"
	foreground = "#dbe2e9"
)

// palette has the sixteen colors of a terminal.
var palette = [16]string{
	"#1c232b", "#f2777a", "#7ec699", "#e6c07b", "#6cb6ff", "#d2a8ff", "#56c8c0", "#dbe2e9",
	"#7d8894", "#ff9a9c", "#9be0b3", "#f2d49b", "#96ccff", "#e2c5ff", "#7fe0d9", "#ffffff",
}

// A style is how a character is drawn. Empty colors are the terminal's own.
type style struct {
	color, back                           string
	bold, dim, italic, underline, reverse bool
}

// A segment is a text of one style.
type segment struct {
	style
	column int
	text   string
}

// parseLine splits a line with escape sequences into segments. st is the style at its begin, and
// the result at its end.
func parseLine(line string, st style) ([]segment, style) {
	var segments []segment
	column := 0
	for line != "" {
		if rest, ok := strings.CutPrefix(line, "\x1b["); ok {
			codes, after, found := strings.Cut(rest, "m")
			if !found {
				break
			}
			st = st.apply(codes)
			line = after
			continue
		}
		text, _, _ := strings.Cut(line, "\x1b")
		if text == "" { // another sequence, which capture-pane does not print
			break
		}
		line = line[len(text):]
		segments = append(segments, segment{st, column, text})
		column += len([]rune(text))
	}
	return segments, st
}

// apply changes a style by the codes of an SGR sequence.
func (s style) apply(codes string) style {
	list := strings.FieldsFunc(codes, func(r rune) bool { return r == ';' || r == ':' })
	if len(list) == 0 {
		return style{}
	}
	for i := 0; i < len(list); i++ {
		n, err := strconv.Atoi(list[i])
		if err != nil {
			return s
		}
		switch {
		case n == 0:
			s = style{}
		case n == 1:
			s.bold = true
		case n == 2:
			s.dim = true
		case n == 3:
			s.italic = true
		case n == 4:
			s.underline = true
		case n == 7:
			s.reverse = true
		case n == 22:
			s.bold, s.dim = false, false
		case n == 23:
			s.italic = false
		case n == 24:
			s.underline = false
		case n == 27:
			s.reverse = false
		case n >= 30 && n <= 37:
			s.color = palette[n-30]
		case n >= 90 && n <= 97:
			s.color = palette[n-90+8]
		case n == 39:
			s.color = ""
		case n >= 40 && n <= 47:
			s.back = palette[n-40]
		case n >= 100 && n <= 107:
			s.back = palette[n-100+8]
		case n == 49:
			s.back = ""
		case n == 38 || n == 48:
			color, used := extendedColor(list[i+1:])
			if n == 38 {
				s.color = color
			} else {
				s.back = color
			}
			i += used
		}
	}
	return s
}

// extendedColor returns the color of the codes after 38 or 48, and how many they are.
func extendedColor(list []string) (string, int) {
	numbers := make([]int, len(list))
	for i, text := range list {
		numbers[i], _ = strconv.Atoi(text) // tmux prints numbers
	}
	switch {
	case len(numbers) >= 2 && numbers[0] == 5:
		return indexedColor(numbers[1]), 2
	case len(numbers) >= 4 && numbers[0] == 2:
		return fmt.Sprintf("#%02x%02x%02x", numbers[1]&255, numbers[2]&255, numbers[3]&255), 4
	}
	return "", len(list)
}

// indexedColor returns one of the 256 colors of xterm.
func indexedColor(n int) string {
	switch {
	case n < 0 || n > 255:
		return ""
	case n < 16:
		return palette[n]
	case n >= 232:
		gray := 8 + 10*(n-232)
		return fmt.Sprintf("#%02x%02x%02x", gray, gray, gray)
	}
	level := func(i int) int {
		if i == 0 {
			return 0
		}
		return 55 + 40*i
	}
	n -= 16
	return fmt.Sprintf("#%02x%02x%02x", level(n/36), level(n/6%6), level(n%6))
}

// drawLine returns the SVG of a line, at the top of the picture.
func drawLine(segments []segment) string {
	var b strings.Builder
	for _, r := range segments {
		color, back := r.color, r.back
		if r.reverse {
			if color == "" {
				color = foreground
			}
			if back == "" {
				back = background
			}
			color, back = back, color
		}
		x := margin + float64(r.column)*cellWidth
		length := float64(len([]rune(r.text))) * cellWidth
		if back != "" && back != background {
			fmt.Fprintf(&b, `<rect x="%.1f" y="0" width="%.1f" height="%d" fill="%s"/>`, x, length, cellHeight, back)
		}
		if strings.TrimSpace(r.text) == "" {
			continue
		}
		var attributes strings.Builder
		if color != "" {
			fmt.Fprintf(&attributes, ` fill="%s"`, color)
		}
		if r.bold {
			attributes.WriteString(` font-weight="700"`)
		}
		if r.italic {
			attributes.WriteString(` font-style="italic"`)
		}
		if r.dim {
			attributes.WriteString(` opacity=".65"`)
		}
		if r.underline {
			attributes.WriteString(` text-decoration="underline"`)
		}
		// textLength keeps the columns if the reader's font is narrower or wider.
		fmt.Fprintf(&b, `<text x="%.1f" y="13.5" textLength="%.1f" lengthAdjust="spacingAndGlyphs"%s>%s</text>`,
			x, length, attributes.String(), html.EscapeString(r.text))
	}
	return b.String()
}

// animate returns the animated SVG of the frames. Each different line is in it once.
func animate(frames []frame) string {
	var total time.Duration
	for _, f := range frames {
		total += f.lasts
	}
	var lines []string // by number
	var groups, styles strings.Builder
	var at time.Duration
	longest := 0
	for i, f := range frames {
		if f.lasts > frames[longest].lasts {
			longest = i
		}
	}
	for i, f := range frames {
		begin, end := percent(at, total), percent(at+f.lasts, total)
		at += f.lasts
		first, last := "hidden", end+"%{visibility:hidden}"
		if i == 0 {
			first = "visible"
		}
		if i == len(frames)-1 {
			last = "100%{visibility:visible}" // until the first frame begins again
		}
		fmt.Fprintf(&styles, ".f%d{animation:k%d %.2fs step-end infinite}\n@keyframes k%d{0%%{visibility:%s}%s%%{visibility:visible}%s}\n",
			i, i, total.Seconds(), i, first, begin, last)
		class := fmt.Sprintf("f%d", i)
		if i == longest {
			class += " still"
		}
		fmt.Fprintf(&groups, `<g class="f %s">`, class)
		st := style{}
		for y, text := range strings.Split(strings.TrimRight(f.screen, "\n"), "\n") {
			var segments []segment
			segments, st = parseLine(text, st)
			drawn := drawLine(segments)
			if drawn == "" {
				continue
			}
			n := slices.Index(lines, drawn)
			if n < 0 {
				n = len(lines)
				lines = append(lines, drawn)
			}
			fmt.Fprintf(&groups, `<use href="#l%d" y="%d"/>`, n, titleBar+margin/2+y*cellHeight)
		}
		groups.WriteString("</g>\n")
	}
	w := 2*margin + columns*cellWidth
	h := titleBar + margin + rows*cellHeight
	var b strings.Builder
	fmt.Fprintf(&b, `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %.0f %d" width="%.0f" height="%d" fill="%s" font-family="ui-monospace, SFMono-Regular, Menlo, Consolas, 'DejaVu Sans Mono', monospace" font-size="%d" style="white-space:pre">`+"\n",
		w, h, w, h, foreground, fontSize)
	b.WriteString("<title>A terminal: mcpwire doctor says why a server does not start, and mcpwire watch shows the traffic of taps</title>\n")
	// Who does not want motion sees the frame that lasts longest.
	fmt.Fprintf(&b, "<style>\n.f{visibility:hidden}text{white-space:pre}\n%s@media (prefers-reduced-motion:reduce){.f{animation:none}.still{visibility:visible}}\n</style>\n", styles.String())
	b.WriteString("<defs>\n")
	for n, text := range lines {
		fmt.Fprintf(&b, `<g id="l%d">%s</g>`+"\n", n, text)
	}
	b.WriteString("</defs>\n")
	fmt.Fprintf(&b, `<rect width="%.0f" height="%d" rx="9" fill="%s"/>`, w, h, background)
	for i, color := range []string{"#f2777a", "#e6c07b", "#7ec699"} {
		fmt.Fprintf(&b, `<circle cx="%d" cy="16" r="5.5" fill="%s"/>`, 20+19*i, color)
	}
	b.WriteString("\n" + groups.String() + "</svg>\n")
	return b.String()
}

// percent returns part of total as a percentage.
func percent(part, total time.Duration) string {
	return strconv.FormatFloat(100*float64(part)/float64(total), 'f', 3, 64)
}
