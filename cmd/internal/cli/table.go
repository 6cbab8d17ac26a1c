package cli

import (
	"fmt"
	"io"
	"os"
	"slices"
	"strings"

	"golang.org/x/term"

	"mcpwire/cmd/internal/trace"
)

// A table is printed with aligned columns. Its texts must be escaped.
type table struct {
	heads []string
	// right aligns all columns except the last to the right.
	right bool
	// spare are the heads of columns that may be dropped on a narrow terminal, the least important
	// first.
	spare []string
	rows  [][]string
}

func (t *table) add(cells ...string) { t.rows = append(t.rows, cells) }

// drop removes a column and reports whether it existed.
func (t *table) drop(head string) bool {
	i := slices.Index(t.heads, head)
	if i < 0 {
		return false
	}
	t.heads = slices.Delete(t.heads, i, i+1)
	for j := range t.rows {
		t.rows[j] = slices.Delete(t.rows[j], i, i+1)
	}
	return true
}

// write prints the table. On a terminal it drops spare columns, whose heads it returns, and cuts
// the last column so that lines fit.
func (t *table) write(w io.Writer, width int) (left []string, err error) {
	for _, spare := range t.spare {
		if width > 0 && lineWidth(t.widths()) > width && t.drop(spare) {
			left = append(left, spare)
		}
	}
	widths, room := t.widths(), 0
	last := len(widths) - 1
	if width > 0 && lineWidth(widths) > width {
		room = max(1, width-lineWidth(widths[:last])-gap)
	}
	var b strings.Builder
	for _, r := range append([][]string{t.heads}, t.rows...) {
		for i, cell := range r[:last] {
			pad := strings.Repeat(" ", widths[i]-trace.Width(cell))
			if t.right {
				cell, pad = pad, cell
			}
			b.WriteString(cell + pad + strings.Repeat(" ", gap))
		}
		b.WriteString(trace.Truncate(r[last], room) + "\n")
	}
	_, err = io.WriteString(w, b.String())
	return left, err
}

// gap is the number of screen columns between columns of the table.
const gap = 2

func (t *table) widths() []int {
	widths := make([]int, len(t.heads))
	for _, r := range append([][]string{t.heads}, t.rows...) {
		for i, cell := range r {
			widths[i] = max(widths[i], trace.Width(cell))
		}
	}
	return widths
}

func lineWidth(widths []int) int {
	sum := gap * max(0, len(widths)-1)
	for _, w := range widths {
		sum += w
	}
	return sum
}

// print writes the table to standard output and names dropped columns on standard error.
func (t *table) print(e *env) error {
	left, err := t.write(e.stdout, terminalWidth(e.stdout))
	if err == nil && left != nil {
		_, err = fmt.Fprintf(e.stderr, "the terminal is too narrow for %s; --json has all columns\n", strings.ToLower(strings.Join(left, ", ")))
	}
	return err
}

// terminalWidth returns the number of columns of the terminal that w writes to, or 0 if w isn't a
// terminal.
func terminalWidth(w io.Writer) int {
	if s, ok := w.(interface{ terminal() *os.File }); ok {
		w = s.terminal()
	}
	width := newScreen(w).width
	if f, ok := w.(*os.File); ok && width > 0 && os.Getenv("COLUMNS") == "" {
		if n, _, err := term.GetSize(int(f.Fd())); err == nil && n >= minWidth {
			width = n
		}
	}
	return width
}
