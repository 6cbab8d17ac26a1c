package cli

import (
	"encoding/json"
	"fmt"
	"io"
	"strings"
)

// The marks of what a doctor finds.
const (
	markGood = "ok"
	markBad  = "problem"
	markOdd  = "warning"
	markNote = "note"
)

// A doctorReport is what is said of a server.
type doctorReport struct {
	Target   string           `json:"target"`
	Status   string           `json:"status"`
	Sections []*doctorSection `json:"sections"`
	Verdict  string           `json:"verdict"`
	Next     string           `json:"next,omitempty"`

	status  int // to exit with, once something was wrong
	cause   string
	printed int // sections
	out     io.Writer
	paint   paint
	json    bool
	failed  error // to write
}

// A doctorSection is a part of it.
type doctorSection struct {
	Title string        `json:"title"`
	Lines []*doctorLine `json:"lines"`

	r *doctorReport
}

// A doctorLine is one thing that was found. Everything in it is safe to show.
type doctorLine struct {
	Mark   string   `json:"mark"`
	Text   string   `json:"text"`
	Detail []string `json:"detail,omitempty"`
	Hint   string   `json:"hint,omitempty"`
}

// What a doctor says in the end, for scripts.
var doctorStatus = map[int]string{exitOK: "healthy", exitFindings: "problems", exitUnreachable: "unreachable", exitAuth: "authorization_required"}

// section begins another part, and shows the one before.
func (r *doctorReport) section(title string) *doctorSection {
	r.flush()
	s := &doctorSection{Title: title, Lines: []*doctorLine{}, r: r}
	r.Sections = append(r.Sections, s)
	return s
}

func (s *doctorSection) add(mark, format string, args ...any) *doctorLine {
	l := &doctorLine{Mark: mark, Text: fmt.Sprintf(format, args...)}
	s.Lines = append(s.Lines, l)
	return l
}

func (s *doctorSection) good(format string, args ...any) *doctorLine {
	return s.add(markGood, format, args...)
}
func (s *doctorSection) odd(format string, args ...any) *doctorLine {
	return s.add(markOdd, format, args...)
}
func (s *doctorSection) note(format string, args ...any) *doctorLine {
	return s.add(markNote, format, args...)
}

// bad is something that keeps hosts from using the server. The first of them decides what is said in the end.
func (s *doctorSection) bad(format string, args ...any) *doctorLine {
	l := s.add(markBad, format, args...)
	if s.r.cause == "" {
		s.r.cause = l.Text
	}
	s.r.worse(exitFindings)
	return l
}

// hint says how to mend it, and detail shows lines.
func (l *doctorLine) hint(format string, args ...any) *doctorLine {
	l.Hint = fmt.Sprintf(format, args...)
	return l
}

func (l *doctorLine) detail(lines ...string) *doctorLine {
	l.Detail = append(l.Detail, lines...)
	return l
}

// worse notes the status to exit with: what keeps one from getting any further goes before what was seen on the way.
func (r *doctorReport) worse(status int) {
	rank := func(n int) int {
		switch n {
		case exitFindings:
			return 1
		case exitUnreachable:
			return 2
		case exitAuth:
			return 3
		}
		return 0
	}
	if rank(status) > rank(r.status) {
		r.status = status
	}
}

// next says what to do, unless that was said already.
func (r *doctorReport) next(format string, args ...any) {
	if r.Next == "" {
		r.Next = fmt.Sprintf(format, args...)
	}
}

// flush shows the sections that are done: some steps take long, and people wait.
func (r *doctorReport) flush() {
	if r.json {
		return
	}
	for ; r.printed < len(r.Sections); r.printed++ {
		r.write(r.show(r.Sections[r.printed]))
	}
}

func (r *doctorReport) write(text string) {
	if _, err := io.WriteString(r.out, text); err != nil && r.failed == nil {
		r.failed = err
	}
}

func (r *doctorReport) show(s *doctorSection) string {
	if len(s.Lines) == 0 {
		return ""
	}
	marks := map[string][2]string{markGood: {"✓", green}, markBad: {"✗", red}, markOdd: {"!", yellow}, markNote: {"·", dim}}
	var b strings.Builder
	b.WriteString(r.paint.in(bold, s.Title) + "\n")
	for _, l := range s.Lines {
		m := marks[l.Mark]
		b.WriteString("  " + r.paint.in(m[1], m[0]) + " " + l.Text + "\n")
		for _, d := range l.Detail {
			b.WriteString("      " + r.paint.in(dim, "│") + " " + d + "\n")
		}
		if l.Hint != "" {
			b.WriteString("    → " + l.Hint + "\n")
		}
	}
	return b.String()
}

// finish shows the rest, and returns the exit status as an error.
func (r *doctorReport) finish() error {
	r.Status = doctorStatus[r.status]
	if r.Verdict == "" {
		r.Verdict = "the server is well"
		if r.cause != "" {
			r.Verdict = r.cause
		}
	}
	if r.json {
		text, err := json.MarshalIndent(r, "", "  ")
		if err != nil {
			return err
		}
		r.write(string(text) + "\n")
	} else {
		r.flush()
		text := r.paint.in(bold, "Verdict: "+r.Status) + ": " + r.Verdict + "\n"
		if r.Next != "" {
			text += "next: " + r.Next + "\n"
		}
		r.write(text)
	}
	if r.failed != nil {
		return r.failed
	}
	if r.status != exitOK {
		return &exitStatus{r.status}
	}
	return nil
}
