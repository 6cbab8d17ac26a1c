package doctor

import (
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strings"

	"mcpwire/capture"
	"mcpwire/cmd/internal/cli/kit"
	"mcpwire/cmd/internal/exit"
	"mcpwire/internal/text/plural"
)

// The marks of a report's lines.
const (
	markGood = "ok"
	markBad  = "problem"
	markOdd  = "warning"
	markNote = "note"
)

// A doctorReport is what a doctor reports about a server.
type doctorReport struct {
	Target   string           `json:"target"`
	Status   string           `json:"status"`
	Sections []*doctorSection `json:"sections"`
	Verdict  string           `json:"verdict"`

	// Next is a command to run, quoted for a POSIX shell. NextArgv holds the same as arguments.
	// ${NAME} stands in both for a value that must be set first. NextWhen says what to do before.
	Next     string   `json:"next,omitempty"`
	NextArgv []string `json:"nextArgv,omitempty"`
	NextWhen string   `json:"nextWhen,omitempty"`

	// exit is the exit status. Zero means that nothing was wrong.
	exit int
	// cause is the text of the worst problem so far, which has causeRank.
	cause     string
	causeRank rank
	// nextRank is the rank of the section that suggested Next.
	nextRank rank
	// slow describes a slow server. It is empty if the server is fast enough.
	slow string
	// concern is what the server itself says about credentials that it lacks. It may be empty.
	concern string
	// skipped reports that the server was not examined.
	skipped bool
	// speaks names the newest revision that was negotiated, and how long that took. It is empty if
	// none was.
	speaks string
	// warnings counts the rules whose findings are warnings.
	warnings int
	// noAnswer reports that the server runs but does not respond.
	noAnswer bool
	progress *kit.StatusLine
	// printed is the number of sections that are completely shown.
	printed int
	out     io.Writer
	paint   kit.Paint
	json    bool
	// redactor hides secrets in what is shown. It may be nil.
	redactor *capture.Redactor
	// failed is the first error of writing.
	failed error
}

// newDoctorReport returns a report that is shown on standard output.
func newDoctorReport(e *kit.Env, asJSON bool) *doctorReport {
	return &doctorReport{out: e.Stdout, paint: kit.NewScreen(e.Stdout).Paint, json: asJSON, progress: e.StatusLine()}
}

// A rank says what a problem keeps a host from doing. The problem with the lowest one is the
// result.
type rank int

const (
	rankStart rank = iota
	rankHandshake
	// rankRequest is for the first requests after the handshake.
	rankRequest
	rankLists
	rankCalls
	rankRules
)

// sectionRanks holds the ranks of sections, except rankStart.
var sectionRanks = map[string]rank{
	sectionHandshakes: rankHandshake, sectionRefused: rankHandshake, sectionAuth: rankHandshake, sectionLater: rankRequest,
	sectionOutput: rankLists, sectionOrigin: rankRules, sectionRules: rankRules,
}

// The titles of sections with a rank.
const (
	sectionHandshakes = "Handshakes"
	sectionRefused    = "No revision could be negotiated"
	sectionAuth       = "Authorization"
	sectionLater      = "After the handshake"
	sectionOutput     = "Standard output"
	sectionOrigin     = "Origin"
	sectionRules      = "Rules"
)

// A doctorSection is a part of a report.
type doctorSection struct {
	Title string        `json:"title"`
	Lines []*doctorLine `json:"lines"`

	r    *doctorReport
	rank rank
	// shown is the number of lines already shown.
	shown int
}

// A doctorLine is one observation. Its texts are safe to show.
type doctorLine struct {
	Mark   string   `json:"mark"`
	Text   string   `json:"text"`
	Detail []string `json:"detail,omitempty"`
	Hint   string   `json:"hint,omitempty"`
}

// doctorStatus maps exit statuses to the status of a report, for scripts.
var doctorStatus = map[int]string{exit.OK: "healthy", exit.Findings: "problems", exit.Unreachable: "unreachable", exit.Auth: "authorization_required"}

// section starts a new section and shows the previous one.
func (r *doctorReport) section(title string) *doctorSection {
	r.flush()
	s := &doctorSection{Title: title, Lines: []*doctorLine{}, r: r, rank: sectionRanks[title]}
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

// bad adds a problem that keeps hosts from using the server. The first one of the lowest rank
// becomes the verdict.
func (s *doctorSection) bad(format string, args ...any) *doctorLine {
	l := s.add(markBad, format, args...)
	s.r.blame(s.rank, l.Text)
	s.r.worse(exit.Findings)
	return l
}

// blame makes a problem the verdict, unless there is one of this or a lower rank.
func (r *doctorReport) blame(at rank, text string) {
	if r.cause == "" || at < r.causeRank {
		r.cause, r.causeRank = text, at
	}
}

// hint sets the fix, and detail adds lines.
func (l *doctorLine) hint(format string, args ...any) *doctorLine {
	l.Hint = fmt.Sprintf(format, args...)
	return l
}

func (l *doctorLine) detail(lines ...string) *doctorLine {
	l.Detail = append(l.Detail, lines...)
	return l
}

// worse raises the exit status. Statuses that stop the examination take precedence over findings.
func (r *doctorReport) worse(status int) {
	ascending := []int{exit.OK, exit.Findings, exit.Unreachable, exit.Auth}
	if slices.Index(ascending, status) > slices.Index(ascending, r.exit) {
		r.exit = status
	}
}

// next suggests a command to run, unless a section of this or a lower rank has suggested one.
func (r *doctorReport) next(args ...kit.Arg) { r.nextOnce("", args...) }

// nextOnce is like next, for a command to run once a condition holds.
func (r *doctorReport) nextOnce(when string, args ...kit.Arg) {
	at := rankStart
	if n := len(r.Sections); n > 0 {
		at = r.Sections[n-1].rank
	}
	if r.Next != "" && at >= r.nextRank {
		return
	}
	r.nextRank, r.NextArgv = at, nil
	if names := kit.VariablesOf(args); len(names) > 0 {
		set := "with " + strings.Join(names, " and ") + " set"
		if when != "" {
			set = when + ", " + set
		}
		when = set
	}
	r.Next, r.NextWhen = kit.ShellText(args), when
	for _, a := range args {
		r.NextArgv = append(r.NextArgv, a.Text())
	}
}

// status shows the finished lines and, on a terminal, the current step until the next output.
func (r *doctorReport) status(format string, args ...any) {
	r.flush()
	r.progress.Step(format, args...)
}

// flush shows the finished lines, because some steps take long.
func (r *doctorReport) flush() {
	if r.json {
		return
	}
	for _, s := range r.Sections[r.printed:] {
		if s.shown == len(s.Lines) {
			continue
		}
		if s.shown == 0 {
			r.write(r.paint.In(kit.Bold, s.Title) + "\n")
		}
		r.write(r.show(s.Lines[s.shown:]))
		s.shown = len(s.Lines)
	}
	// The last section may get more lines.
	r.printed = max(0, len(r.Sections)-1)
}

func (r *doctorReport) write(text string) {
	r.progress.Clear()
	if _, err := io.WriteString(r.out, text); err != nil && r.failed == nil {
		r.failed = err
	}
}

// fold breaks text between words for the terminal, and indents it like its first line.
func (r *doctorReport) fold(text string, indent int) string {
	width := kit.TerminalWidth(r.out)
	if width == 0 {
		return text
	}
	f := kit.NewFolder(false, width, indent, indent)
	f.Words(text, "")
	return f.String()
}

// prose hides secrets in a text of this program, which may quote the server.
func (r *doctorReport) prose(text string) string {
	if r.redactor == nil {
		return text
	}
	return r.redactor.Prose(text)
}

// quoted hides secrets in lines of the server's output. A key in PEM has several lines.
func (r *doctorReport) quoted(lines []string) []string {
	if r.redactor == nil || len(lines) == 0 {
		return lines
	}
	return strings.Split(r.redactor.Text(strings.Join(lines, "\n")), "\n")
}

func (r *doctorReport) show(lines []*doctorLine) string {
	marks := map[string][2]string{markGood: {"✓", kit.Green}, markBad: {"✗", kit.Red}, markOdd: {"!", kit.Yellow}, markNote: {"·", kit.Dim}}
	var b strings.Builder
	for _, l := range lines {
		m := marks[l.Mark]
		b.WriteString("  " + r.paint.In(m[1], m[0]) + " " + r.fold(r.prose(l.Text), 4) + "\n")
		for _, d := range r.quoted(l.Detail) {
			bar := "      " + r.paint.In(kit.Dim, "│") + " "
			b.WriteString(bar + strings.ReplaceAll(r.fold(d, 8), "\n        ", "\n"+bar) + "\n")
		}
		if l.Hint != "" {
			b.WriteString("    → " + r.fold(r.prose(l.Hint), 6) + "\n")
		}
	}
	return b.String()
}

// finish shows the rest and returns the exit status as an error.
func (r *doctorReport) finish() error {
	r.Status = doctorStatus[r.exit]
	if r.skipped {
		r.Status = "skipped"
	}
	if r.exit == exit.Unreachable && r.noAnswer {
		r.Status = "no_answer"
	}
	if r.Verdict == "" {
		var remarks []string
		for _, remark := range []string{r.slow, r.concern} {
			if remark != "" {
				remarks = append(remarks, remark)
			}
		}
		switch {
		case r.warnings > 0 && len(remarks) > 0:
			remarks = append(remarks, "there are warnings")
		case r.warnings > 0:
			remarks = append(remarks, plural.Of(r.warnings, "warning"))
		}
		if r.Verdict = "no problems found"; len(remarks) > 0 {
			r.Verdict += ", but " + strings.Join(remarks, ", and ")
		}
		if r.slow != "" && r.cause != "" {
			// Hosts give up on it before they could notice what breaks a rule.
			r.blame(rankHandshake, r.slow+"; "+hostTimeouts)
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
		result := "Result: " + r.Status
		verdict := strings.TrimPrefix(r.fold(result+": "+r.prose(r.Verdict), 0), result)
		text := r.paint.In(kit.Bold, result) + verdict + "\n"
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
	if r.exit != exit.OK {
		return &exit.Status{Code: r.exit}
	}
	return nil
}
