package kit

import (
	"fmt"
	"io"
	"os"
	"slices"
	"strings"

	"golang.org/x/term"

	"mcpwire/cmd/internal/trace"
)

// A Table is printed with aligned columns. Its texts must be escaped.
type Table struct {
	Heads []string
	// Right aligns all columns except the last to the right.
	Right bool
	// Spare are the heads of columns that may be dropped on a narrow terminal, the least important
	// first.
	Spare []string
	rows  [][]string
}

// Add adds a row.
func (t *Table) Add(cells ...string) { t.rows = append(t.rows, cells) }

// Drop removes a column and reports whether it existed.
func (t *Table) Drop(head string) bool {
	i := slices.Index(t.Heads, head)
	if i < 0 {
		return false
	}
	t.Heads = slices.Delete(t.Heads, i, i+1)
	for j := range t.rows {
		t.rows[j] = slices.Delete(t.rows[j], i, i+1)
	}
	return true
}

// Write prints the table. On a terminal it drops spare columns, whose heads it returns, and cuts
// the last column so that lines fit.
func (t *Table) Write(w io.Writer, width int) (left []string, err error) {
	for _, spare := range t.Spare {
		if width > 0 && lineWidth(t.widths()) > width && t.Drop(spare) {
			left = append(left, spare)
		}
	}
	widths, room := t.widths(), 0
	last := len(widths) - 1
	if width > 0 && lineWidth(widths) > width {
		room = max(1, width-lineWidth(widths[:last])-gap)
	}
	var b strings.Builder
	for _, r := range append([][]string{t.Heads}, t.rows...) {
		for i, cell := range r[:last] {
			pad := strings.Repeat(" ", widths[i]-trace.Width(cell))
			if t.Right {
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

func (t *Table) widths() []int {
	widths := make([]int, len(t.Heads))
	for _, r := range append([][]string{t.Heads}, t.rows...) {
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

// Print writes the table to standard output and names dropped columns on standard error.
func (t *Table) Print(e *Env) error {
	left, err := t.Write(e.Stdout, TerminalWidth(e.Stdout))
	if err == nil && left != nil {
		_, err = fmt.Fprintf(e.Stderr, "the terminal is too narrow for %s; --json has all columns\n", strings.ToLower(strings.Join(left, ", ")))
	}
	return err
}

// TerminalWidth returns the number of columns of the terminal that w writes to, or 0 if w isn't a
// terminal.
func TerminalWidth(w io.Writer) int {
	if s, ok := w.(interface{ Terminal() *os.File }); ok {
		w = s.Terminal()
	}
	width := NewScreen(w).width
	if f, ok := w.(*os.File); ok && width > 0 && os.Getenv("COLUMNS") == "" {
		if n, _, err := term.GetSize(int(f.Fd())); err == nil && n >= MinWidth {
			width = n
		}
	}
	return width
}
