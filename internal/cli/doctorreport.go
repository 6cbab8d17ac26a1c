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

	// Next is a command to run, quoted for a POSIX shell, and NextArgv the same as its arguments:
	// ${NAME} in both stands for a value that must be set first. NextWhen says what comes before it.
	Next     string   `json:"next,omitempty"`
	NextArgv []string `json:"nextArgv,omitempty"`
	NextWhen string   `json:"nextWhen,omitempty"`

	exit     int // status to exit with, once something was wrong
	cause    string
	slow     string // that the server is, if it is
	noAnswer bool   // it runs, and does not answer
	progress *statusLine
	printed  int // sections that are shown as a whole
	out      io.Writer
	paint    paint
	json     bool
	failed   error // to write
}

// A doctorSection is a part of it.
type doctorSection struct {
	Title string        `json:"title"`
	Lines []*doctorLine `json:"lines"`

	r     *doctorReport
	shown int // how many lines are
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
	if rank(status) > rank(r.exit) {
		r.exit = status
	}
}

// next suggests a command to run, unless one was suggested already.
func (r *doctorReport) next(args ...shellArg) { r.nextOnce("", args...) }

// nextOnce suggests a command to run after something else.
func (r *doctorReport) nextOnce(when string, args ...shellArg) {
	if r.Next != "" {
		return
	}
	if names := variablesOf(args); len(names) > 0 {
		set := "with " + strings.Join(names, " and ") + " set"
		if when != "" {
			set = when + ", " + set
		}
		when = set
	}
	r.Next, r.NextWhen = shellText(args), when
	for _, a := range args {
		r.NextArgv = append(r.NextArgv, a.text())
	}
}

// status shows people on a terminal what is being done, until something else is shown.
func (r *doctorReport) status(format string, args ...any) {
	r.flush()
	r.progress.show(fmt.Sprintf(format, args...))
}

// flush shows the sections that are done: some steps take long, and people wait.
func (r *doctorReport) flush() {
	r.progress.clear()
	if r.json {
		return
	}
	for _, s := range r.Sections[r.printed:] {
		if s.shown == len(s.Lines) {
			continue
		}
		if s.shown == 0 {
			r.write(r.paint.in(bold, s.Title) + "\n")
		}
		r.write(r.show(s.Lines[s.shown:]))
		s.shown = len(s.Lines)
	}
	r.printed = max(0, len(r.Sections)-1) // more lines may come to the last one
}

func (r *doctorReport) write(text string) {
	if _, err := io.WriteString(r.out, text); err != nil && r.failed == nil {
		r.failed = err
	}
}

func (r *doctorReport) show(lines []*doctorLine) string {
	marks := map[string][2]string{markGood: {"✓", green}, markBad: {"✗", red}, markOdd: {"!", yellow}, markNote: {"·", dim}}
	var b strings.Builder
	for _, l := range lines {
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
	r.Status = doctorStatus[r.exit]
	if r.exit == exitUnreachable && r.noAnswer {
		r.Status = "no_answer"
	}
	if r.Verdict == "" {
		r.Verdict = "the server is well"
		if r.slow != "" {
			r.Verdict += ", but " + r.slow
		}
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
			when := "next"
			if r.NextWhen != "" {
				when += ", " + r.NextWhen
			}
			text += when + ": " + r.Next + "\n"
		}
		r.write(text)
	}
	if r.failed != nil {
		return r.failed
	}
	if r.exit != exitOK {
		return &exitStatus{r.exit}
	}
	return nil
}
