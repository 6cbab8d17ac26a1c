// Command chart draws the chart of the README's section Speed from the tables in tools/bench/README.md:
//
//	cd tools/bench && go run ./chart
//
// It writes doc/pictures/speed-light.svg and speed-dark.svg.
package main

import (
	"fmt"
	"html"
	"log"
	"os"
	"path/filepath"
	"strconv"
	"strings"
)

// panels are the parts of the chart, each from a column of a table.
var panels = []panel{
	{
		title: "A server on standard input and output", note: "median time of a call, modern era",
		table: "servers, modern era, 1 in flight", column: "p50 / rawpipe", label: "p50", least: "rawpipe",
	},
	{
		title: "A server over HTTP, 64 connections", note: "processor time of a call, modern era",
		table: "HTTP servers, modern era, JSON replies, 64 connections", column: "CPU / rawhttp", label: "CPU per call", least: "rawhttp",
	},
	{
		title: "A bridge from standard input and output to HTTP", note: "median time of a call of 1 KiB, legacy era",
		table: "client on stdio, server on HTTP, texts of 1024 bytes", era: "legacy", column: "/ no bridge", label: "p50 of 1 in flight", least: "no bridge",
	},
}

// A panel says which figures to draw.
type panel struct {
	title, note string
	// table is the caption of the table. era is the first cell of its rows, if it has several.
	table, era string
	// column has the ratios, and label the figures that are written next to the bars.
	column, label string
	// least is the row of the least that is possible, whose ratio is 1.
	least string
	bars  []bar
}

// A bar is one program.
type bar struct {
	name  string
	ratio float64
	label string
}

// read fills the panel from the text of tools/bench/README.md.
func (p *panel) read(text string) error {
	_, rest, ok := strings.Cut(text, "**"+p.table+"**\n")
	if !ok {
		return fmt.Errorf("no table %q", p.table)
	}
	var columns []string
	for line := range strings.Lines(strings.TrimLeft(rest, "\n")) {
		line = strings.TrimSpace(line)
		if !strings.HasPrefix(line, "|") {
			break
		}
		cells := strings.Split(strings.Trim(line, "|"), "|")
		for i := range cells {
			cells[i] = strings.TrimSpace(cells[i])
		}
		switch {
		case columns == nil:
			columns = cells
		case strings.HasPrefix(cells[0], "--"):
		default:
			if err := p.readRow(columns, cells); err != nil {
				return fmt.Errorf("table %q: %w", p.table, err)
			}
		}
	}
	if len(p.bars) < 3 {
		return fmt.Errorf("table %q has %d rows to draw, want at least 3", p.table, len(p.bars))
	}
	return nil
}

// readRow adds the row to the bars, unless it is of another era or a program is there already.
func (p *panel) readRow(columns, cells []string) error {
	if len(cells) != len(columns) {
		return fmt.Errorf("row %q has %d cells, want %d", cells, len(cells), len(columns))
	}
	name := cells[0]
	if p.era != "" {
		if cells[0] != p.era {
			return nil
		}
		name = cells[1]
	}
	b := bar{name: name}
	for _, have := range p.bars {
		if have.name == name {
			return nil
		}
	}
	for i, column := range columns {
		switch {
		case column == p.label && b.label == "":
			b.label = cells[i]
		case column == p.column && b.ratio == 0:
			number, _, _ := strings.Cut(cells[i], " ") // the quartiles follow
			var err error
			if b.ratio, err = strconv.ParseFloat(number, 64); err != nil {
				return fmt.Errorf("%s: %w", name, err)
			}
		}
	}
	if b.ratio <= 0 || b.label == "" {
		return fmt.Errorf("%s has no columns %q and %q", name, p.column, p.label)
	}
	if strings.Contains(name, ", on ") { // another baseline
		return nil
	}
	p.bars = append(p.bars, b)
	return nil
}

// A theme has the colors of a chart.
type theme struct{ back, text, dim, line, own, least, other string }

var (
	light = theme{back: "#ffffff", text: "#1c2530", dim: "#596674", line: "#dfe4e8", own: "#0f766e", least: "#94a3b3", other: "#c9d1d9"}
	dark  = theme{back: "#12161b", text: "#dbe2e9", dim: "#93a0ad", line: "#2c343d", own: "#2dd4bf", least: "#6b7a89", other: "#3b4652"}
)

const (
	width     = 860
	nameWidth = 130
	barLeft   = nameWidth + 12
	barWidth  = width - barLeft - 190 // the text is to the right of the longest bar
	rowHeight = 26
)

// draw returns the chart as SVG.
func draw(panels []panel, t theme) string {
	var b strings.Builder
	height := 16
	for _, p := range panels {
		height += 58 + rowHeight*len(p.bars)
	}
	height += 20
	fmt.Fprintf(&b, `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %d %d" width="%[1]d" height="%d" font-family="system-ui, 'Segoe UI', Roboto, 'DejaVu Sans', sans-serif" font-size="13">`+"\n",
		width, height, height)
	fmt.Fprintf(&b, "<title>%s</title>\n", html.EscapeString("How long a call takes, as a multiple of the least that is possible"))
	fmt.Fprintf(&b, `<rect width="%d" height="%d" rx="8" fill="%s"/>`+"\n", width, height, t.back)
	y := 16
	for _, p := range panels {
		longest := 0.0
		for _, bar := range p.bars {
			longest = max(longest, bar.ratio)
		}
		fmt.Fprintf(&b, `<text x="20" y="%d" fill="%s" font-size="15" font-weight="600">%s<tspan fill="%s" font-size="13" font-weight="400">  %s</tspan></text>`+"\n",
			y+20, t.text, html.EscapeString(p.title), t.dim, html.EscapeString(p.note))
		y += 36
		for _, bar := range p.bars {
			color, weight := t.other, "400"
			switch bar.name {
			case "mcpwire":
				color, weight = t.own, "600"
			case p.least:
				color = t.least
			}
			w := max(2, bar.ratio/longest*barWidth)
			fmt.Fprintf(&b, `<text x="%d" y="%d" fill="%s" font-weight="%s" text-anchor="end">%s</text>`, nameWidth, y+17, t.text, weight, html.EscapeString(bar.name))
			fmt.Fprintf(&b, `<rect x="%d" y="%d" width="%.1f" height="16" rx="3" fill="%s"/>`, barLeft, y+4, w, color)
			ratio := strconv.FormatFloat(bar.ratio, 'f', 1, 64) + " ×"
			if bar.name == p.least {
				ratio = "the least that is possible"
			}
			fmt.Fprintf(&b, `<text x="%.1f" y="%d" fill="%s" font-weight="%s">%s<tspan fill="%s" font-weight="400">  %s</tspan></text>`+"\n",
				barLeft+w+8, y+17, t.text, weight, html.EscapeString(ratio), t.dim, html.EscapeString(bar.label))
			y += rowHeight
		}
		y += 22
	}
	fmt.Fprintf(&b, `<text x="20" y="%d" fill="%s" font-size="12">From tools/bench/README.md. Shorter is better.</text>`+"\n</svg>\n", height-14, t.dim)
	return b.String()
}

// charts returns the files and their texts.
func charts(results string) (map[string]string, error) {
	drawn := make([]panel, len(panels))
	for i, p := range panels {
		if err := p.read(results); err != nil {
			return nil, err
		}
		drawn[i] = p
	}
	return map[string]string{"speed-light.svg": draw(drawn, light), "speed-dark.svg": draw(drawn, dark)}, nil
}

func run() error {
	results, err := os.ReadFile("README.md")
	if err != nil {
		return fmt.Errorf("run this in the folder bench: %w", err)
	}
	files, err := charts(string(results))
	if err != nil {
		return err
	}
	for name, text := range files {
		if err := os.WriteFile(filepath.Join("../../doc/pictures", name), []byte(text), 0o666); err != nil {
			return err
		}
	}
	return nil
}

func main() {
	if err := run(); err != nil {
		log.Fatal(err)
	}
}
