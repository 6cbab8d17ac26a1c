package hosts

import (
	"fmt"
	"slices"
	"strings"

	"mcpwire/internal/printable"
)

// diffContext is how many lines are shown around changes.
const diffContext = 3

// Diff returns what Save would change, as a unified diff for people: values of variables and headers, and whatever else is no part of how
// servers are started, are replaced by [Placeholder], on all lines. mask gets commands with their arguments and returns as many texts
// to show; nil shows them as they are. Control characters are escaped. It is "" if nothing changes.
func (d *Document) Diff(mask func(command []string) []string) string {
	out := d.Result()
	root, err := parse(out, d.syntax)
	if err != nil {
		return "" // Save will say so
	}
	a, b := redactedLines(d.data, d.root, mask), redactedLines(out, root, mask)
	ops := compare(a, b)
	if !slices.ContainsFunc(ops, func(o op) bool { return o.kind != ' ' }) {
		return ""
	}
	var w strings.Builder
	w.WriteString("--- " + printable.Line(d.path) + "\n+++ " + printable.Line(d.path) + "\n")
	for i := 0; i < len(ops); {
		if ops[i].kind == ' ' {
			i++
			continue
		}
		from, to := max(0, i-diffContext), i
		for gap := 0; to < len(ops) && gap <= 2*diffContext; to++ {
			if gap++; ops[to].kind != ' ' {
				gap = 0
			}
		}
		last := to - 1
		for ops[last].kind == ' ' {
			last--
		}
		to = min(len(ops), last+1+diffContext)
		writeHunk(&w, ops, from, to)
		i = to
	}
	return w.String()
}

// An op is a line of a diff: ' ', '-' or '+'.
type op struct {
	kind byte
	text string
}

func writeHunk(w *strings.Builder, ops []op, from, to int) {
	count := func(ops []op, not byte) int {
		n := 0
		for _, o := range ops {
			if o.kind != not {
				n++
			}
		}
		return n
	}
	place := func(not byte) string {
		start, n := count(ops[:from], not), count(ops[from:to], not)
		if n > 0 {
			start++
		}
		return fmt.Sprintf("%d,%d", start, n)
	}
	fmt.Fprintf(w, "@@ -%s +%s @@\n", place('+'), place('-'))
	for _, o := range ops[from:to] {
		line, end := strings.CutSuffix(o.text, "\n")
		parts := strings.Split(strings.TrimSuffix(line, "\r"), "\t")
		for i, p := range parts {
			parts[i] = printable.Line(p)
		}
		w.WriteString(string(o.kind) + strings.Join(parts, "\t") + "\n")
		if !end {
			w.WriteString("\\ No newline at end of file\n")
		}
	}
}

// maxDiff is how many lines may differ before the diff is no longer the shortest.
const maxDiff = 500

// compare returns the lines of both texts, those that are only in a before those that are only in b: the shortest way from a to b, as
// in Myers, "An O(ND) Difference Algorithm and Its Variations".
func compare(a, b []string) []op {
	var head, tail []op
	for len(a) > 0 && len(b) > 0 && a[0] == b[0] {
		head = append(head, op{' ', a[0]})
		a, b = a[1:], b[1:]
	}
	for len(a) > 0 && len(b) > 0 && a[len(a)-1] == b[len(b)-1] {
		tail = append(tail, op{' ', a[len(a)-1]})
		a, b = a[:len(a)-1], b[:len(b)-1]
	}
	slices.Reverse(tail)
	return slices.Concat(head, shortest(a, b), tail)
}

func shortest(a, b []string) []op {
	reach := map[int]int{1: 0} // how far of a is done on each diagonal
	var trace []map[int]int
	for d := 0; d <= min(len(a)+len(b), maxDiff); d++ {
		next := make(map[int]int, d+1)
		for k := -d; k <= d; k += 2 {
			x := reach[k-1] + 1
			if k == -d || k != d && reach[k-1] < reach[k+1] {
				x = reach[k+1]
			}
			y := x - k
			for x < len(a) && y < len(b) && y >= 0 && a[x] == b[y] {
				x, y = x+1, y+1
			}
			next[k] = x
			if x >= len(a) && y >= len(b) {
				return backtrack(a, b, append(trace, reach), d)
			}
		}
		trace = append(trace, reach)
		reach = next
	}
	var ops []op
	for _, s := range a {
		ops = append(ops, op{'-', s})
	}
	for _, s := range b {
		ops = append(ops, op{'+', s})
	}
	return ops
}

// backtrack goes the way back that shortest has found.
func backtrack(a, b []string, trace []map[int]int, d int) []op {
	var ops []op
	x, y := len(a), len(b)
	for ; d >= 0; d-- {
		reach, k := trace[d], x-y
		down := k == -d || k != d && reach[k-1] < reach[k+1]
		px := reach[k-1]
		py := px - (k - 1)
		if down {
			px = reach[k+1]
			py = px - (k + 1)
		}
		for x > px && y > py && x > 0 && y > 0 {
			x, y = x-1, y-1
			ops = append(ops, op{' ', a[x]})
		}
		if d == 0 {
			break
		}
		if down {
			y--
			ops = append(ops, op{'+', b[y]})
		} else {
			x--
			ops = append(ops, op{'-', a[x]})
		}
	}
	slices.Reverse(ops)
	return ops
}
