package tui

import (
	"fmt"
	"strconv"
	"strings"

	"mcpwire/cmd/internal/trace"
)

// Progress notifications of a call that follow each other form a run, which is one line unless it
// is unfolded. The Seq of its first row stands for it in a foldState.

// runFrom returns the end of the run that begins at list[i]: i+1 if there is none.
func runFrom(list []*trace.Row, i int) int {
	j := i + 1
	if list[i].Kind == trace.Progress {
		for j < len(list) && list[j].Kind == trace.Progress {
			j++
		}
	}
	return j
}

// runStart returns the first row of the run that a row belongs to, or nil.
func runStart(r *trace.Row) *trace.Row {
	if r.Kind != trace.Progress || r.Parent == nil {
		return nil
	}
	list := r.Parent.Children
	for i := 0; i < len(list); {
		j := runFrom(list, i)
		for _, x := range list[i:j] {
			if x == r && j-i > 1 {
				return list[i]
			}
		}
		i = j
	}
	return nil
}

// runText describes a run, such as "progress 1…200/300 ██████░░░░ 200 messages".
func runText(run []*trace.Row) string {
	first, last := run[0].Target, run[len(run)-1].Target
	from, _, _ := strings.Cut(first, "/")
	text := "progress " + safe(from+"…"+last)
	if bar := progressBar(last); bar != "" {
		text += " " + bar
	}
	return text + fmt.Sprintf(" %d messages", len(run))
}

// progressColumns is the width of a bar.
const progressColumns = 10

// progressBar returns a bar for progress such as "200/300", or "" without a total.
func progressBar(target string) string {
	done, total, ok := strings.Cut(target, "/")
	a, errA := strconv.ParseFloat(done, 64)
	b, errB := strconv.ParseFloat(total, 64)
	if !ok || errA != nil || errB != nil || !(b > 0) || !(a >= 0) {
		return ""
	}
	n := int(min(a/b, 1) * progressColumns)
	return strings.Repeat("█", n) + strings.Repeat("░", progressColumns-n)
}
