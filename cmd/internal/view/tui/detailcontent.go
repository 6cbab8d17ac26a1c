package tui

import (
	"cmp"
	"fmt"
	"strings"

	"mcpwire/cmd/internal/trace"
	"mcpwire/cmd/internal/view/detail"
)

// content appends what a message asks for or returns.
func (r *renderer) content(out []line, title string, c *detail.Content, d *detail.Detail) []line {
	if c == nil {
		return out
	}
	t := r.theme
	head := line{{t.head, title}}
	if c.Failed {
		head = append(head, span{t.failure, "  ✖ failed"})
	}
	out = append(out, nil, head)
	for _, b := range c.Blocks {
		out = append(out, r.block(&b, c, d)...)
	}
	if c.OmittedBlocks > 0 {
		out = append(out, line{{t.dim, fmt.Sprintf("  … and %d more blocks", c.OmittedBlocks)}})
	}
	return out
}

func (r *renderer) block(b *detail.Block, c *detail.Content, d *detail.Detail) []line {
	t := r.theme
	var out []line
	role := b.Role
	if role != "" {
		role += ":"
	}
	if head := trace.Join(" ", role, b.Title, b.URI, b.Name); head != "" {
		st := t.dim
		if b.Kind == detail.ErrorBlock {
			st = t.failure
		}
		out = append(out, line{{"", "  "}, {st, safe(head)}})
	}
	indented := func(l detail.Line) line { return append(line{{"", "    "}}, r.textLine(l)...) }
	switch {
	case b.Table != nil:
		out = append(out, r.contentTable(b.Table)...)
	case b.Kind == detail.MediaBlock:
		out = append(out, line{{"", "    "}, {t.dim, fmt.Sprintf("(%s, %s)", cmp.Or(safe(b.MediaType), "data"), trace.FormatSize(mediaSize(b, c, d)))}})
	case b.Description != "":
		out = append(out, line{{"", "    "}, {t.text, safe(b.Description)}})
	}
	for _, l := range b.Lines {
		out = append(out, indented(l))
	}
	if b.OmittedBytes > 0 && b.Kind != detail.MediaBlock {
		out = append(out, line{{"", "    "}, {t.dim, "… and " + trace.FormatSize(b.OmittedBytes) + " more"}})
	}
	return out
}

// mediaSize returns the size of the data of a block.
func mediaSize(b *detail.Block, c *detail.Content, d *detail.Detail) int64 {
	p := map[string]*detail.Payload{"request": d.Request, "response": d.Response, "last": d.Last}[c.Of]
	if p != nil && b.Blob > 0 && b.Blob <= len(p.Blobs) {
		return p.Blobs[b.Blob-1].Len
	}
	return b.OmittedBytes
}

const (
	maxNameColumn = 24
	maxOtherCell  = 40
)

func (r *renderer) contentTable(table *detail.Table) []line {
	t := r.theme
	columns := 2
	for _, row := range table.Rows {
		columns = max(columns, len(row))
	}
	widths := make([]int, columns)
	measure := func(i int, s string) { widths[i] = max(widths[i], width(s)) }
	for i, c := range table.Columns {
		measure(i, safe(c))
	}
	for _, row := range table.Rows {
		for i, cell := range row {
			for _, l := range cell {
				measure(i, r.textLine(l).text())
			}
		}
	}
	widths[0] = min(widths[0], maxNameColumn)
	// The last cell of an object wraps, and that of a list is cut.
	room := 0
	if table.Columns != nil {
		room = r.columns - 4 - widths[0] - 2
		for i := 1; i < columns-1; i++ {
			widths[i] = min(widths[i], maxOtherCell, max(8, (r.columns-8)/4))
			room -= widths[i] + 2
		}
		room = max(1, room)
	}
	var out []line
	if table.Columns != nil {
		head := "    "
		for i, c := range table.Columns {
			if i == columns-1 {
				widths[i] = room
			}
			head += pad(cut(safe(c), widths[i]), widths[i]) + "  "
		}
		out = append(out, line{{t.dim, strings.TrimRight(head, " ")}})
	}
	for _, row := range table.Rows {
		out = append(out, r.tableRow(row, widths, room)...)
	}
	if table.OmittedRows > 0 {
		out = append(out, line{{t.dim, fmt.Sprintf("    … and %d more rows", table.OmittedRows)}})
	}
	return out
}

// tableRow returns the lines of a row of a table. The last cell is cut to room columns. If room is
// zero, the pager wraps it.
func (r *renderer) tableRow(row [][]detail.Line, widths []int, room int) []line {
	height := 1
	for _, cell := range row {
		height = max(height, len(cell))
	}
	var out []line
	for k := range height {
		l := line{{"", "    "}}
		for i, cell := range row {
			var part line
			if k < len(cell) {
				part = r.textLine(cell[k])
			}
			if i == 0 {
				part = line{{r.theme.key, part.text()}}
			}
			if i == len(row)-1 {
				if room > 0 && part.width() > room {
					part = part.cut(room)
				}
				l = append(l, part...)
				break
			}
			if n := part.width(); n > widths[i] {
				part = part.cut(widths[i])
			} else {
				part = append(part, span{"", spaces(widths[i] - n)})
			}
			l = append(append(l, part...), span{"", "  "})
		}
		out = append(out, l)
	}
	return out
}
