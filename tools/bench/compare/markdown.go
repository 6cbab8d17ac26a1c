//go:build linux

package main

import (
	"bytes"
	"fmt"
	"io"
	"os"
	"runtime"
	"strings"
	"time"
)

// heading starts the section that a suite's tables are in.
func heading(suite string) string { return "## Results: " + suite + "\n" }

// updateMarkdown replaces the section of a suite in the file r.markdown, which
// ends with the next heading of its level or with the file, or appends one.
func updateMarkdown(r *run, suite string, tables []table) error {
	old, err := os.ReadFile(r.markdown)
	if err != nil {
		return err
	}
	before, rest, _ := bytes.Cut(old, []byte(heading(suite)))
	var after []byte
	if i := bytes.Index(rest, []byte("\n## ")); i >= 0 {
		after = rest[i:]
	}
	var b bytes.Buffer
	fmt.Fprintf(&b, "%s\n\n%s\n", bytes.TrimRight(before, "\n"), heading(suite))
	fmt.Fprintf(&b, "%s %s\n", machine(r.busy), r.what(suite))
	writeMarkdown(&b, tables)
	b.Write(after)
	return os.WriteFile(r.markdown, b.Bytes(), 0o644)
}

// machine says where and when it was measured, and how many others were waiting for
// a processor before that.
func machine(busy float64) string {
	return fmt.Sprintf("%s on %s/%s, %d processors, load average %.1f before, %s.",
		runtime.Version(), runtime.GOOS, runtime.GOARCH, runtime.NumCPU(), busy, time.Now().UTC().Format(time.DateOnly))
}

// what says what a suite has done.
func (o options) what(suite string) string {
	switch suite {
	case "sessions":
		return "Measured once."
	case "bridge":
		return fmt.Sprintf("%d rounds of %v%s.", o.rounds, o.block, npmVersions("bridges"))
	}
	return fmt.Sprintf("Echo of %d bytes, %d rounds of %v.", o.text, o.rounds, o.block)
}

func writeMarkdown(w io.Writer, tables []table) {
	for _, t := range tables {
		fmt.Fprintf(w, "\n**%s**\n\n| %s |\n|---%s|\n", t.title, strings.Join(t.columns, " | "), strings.Repeat("|--:", len(t.columns)-1))
		for _, row := range t.rows {
			fmt.Fprintf(w, "| %s |\n", strings.Join(row, " | "))
		}
	}
}
