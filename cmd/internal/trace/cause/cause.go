// Package cause finds out from the output of a server why it failed.
//
// The causes and their remedies are data, in causes.txt. So are the forms in which programs and
// frameworks report errors, in forms.txt: they find the statement, which is what a reader of the
// output would quote.
package cause

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"mcpwire/internal/text/lazyregexp"
)

// A Cause is why a server failed, according to its output.
type Cause struct {
	// What is the cause in one sentence, or the statement of the server if the cause is unknown. It
	// is "" if the output has neither. It may contain any characters of the server's output.
	What string
	// Fix is what to do. It may be "".
	Fix string
	// Variable is the environment variable that is certainly missing, or "".
	Variable string
	// Known reports that What is a cause, not a statement of the server.
	Known bool
	// Said is the statement of the server.
	Said string
	// Specific reports that a response over HTTP says more than its status does.
	Specific bool
	// Arguments reports that the command line is wrong, so that the program's help may say more.
	Arguments bool
}

// A State says whether the server has ended, or runs and does not respond.
type State string

// The states.
const (
	// Ended means that the process has ended.
	Ended State = ""
	// Silent means that the server runs and does not respond.
	Silent State = "silent"
)

// These select the blocks about exit statuses, responses over HTTP, and servers that work.
const (
	exited   State = "exit"
	overHTTP State = "http"
	later    State = "later"
	running  State = "running"
	program  State = "program"
)

// A Concern is a line of a server that works, about credentials or settings that it lacks or cannot
// use.
type Concern struct {
	Cause
	Line string
}

// Concerns returns the lines that a user should know of, each cause once.
func Concerns(lines []string) (list []Concern) {
	for _, line := range normalize(lines) {
		c, ok := lookup(running, line)
		if ok && !slices.ContainsFunc(list, func(o Concern) bool { return c.Fix == o.Fix }) {
			list = append(list, Concern{c, strings.TrimSpace(line)})
		}
	}
	return list
}

// Find returns the cause in the lines that a server wrote. set are the variables that the user has
// given a value.
func Find(state State, lines, set []string) Cause {
	lines = normalize(lines)
	c := find(state, lines, set)
	if c.Said != "" {
		if !c.Known || !c.Specific {
			c.Said = quoted(c.Said, lines)
		}
		for _, line := range lines {
			if m := property().FindStringSubmatch(line); m != nil && !strings.Contains(c.Said, m[1]) {
				c.Said += " (" + m[1] + ")"
			}
		}
		if !c.Known {
			c.What = c.Said
		}
		if text := suggestion(lines); text != "" && !strings.Contains(c.Said, text) {
			c.Fix = strings.TrimPrefix(c.Fix+"; it says: "+text, "; ")
		}
	}
	if c.Arguments {
		if text := advise(c, lines); text != "" {
			c.Fix += "; " + text
		}
	}
	return c
}

func find(state State, lines, set []string) Cause {
	if c, ok := lookup(Silent, strings.Join(lines, "\n")); ok && state == Silent {
		if !c.Specific { // an error is the reason why it waits
			for _, line := range lines {
				if o, _ := lookup("", line); o.Known && o.Specific && isTrouble(line) {
					return o
				}
			}
		}
		return c
	}
	said := statement(lines)
	if list := settings(said, lines); len(list) > 0 {
		return missingSettings(list, said)
	}
	c, found := lookup("", said)
	if c.Known && c.Specific {
		return c
	}
	if list := variables(said, lines); len(list) > 0 {
		return missing(list, said, set)
	}
	if found {
		return c
	}
	for _, line := range lines {
		if isTrouble(line) && !strings.Contains(said, line) {
			if c, _ := lookup("", line); c.Known {
				if said != "" {
					c.Said = oneLine(said) + ": " + c.Said
				}
				return c
			}
		}
	}
	return unexplained(said, lines)
}

// A Process is what is known of a server that runs as a process and failed.
type Process struct {
	State State
	// Stderr and Stdout are lines that it wrote. Those on standard output are not messages.
	Stderr, Stdout []string
	// Set are the variables that the user has given a value.
	Set []string
	// Command is the program with its arguments, and Absent those that are paths of no file here.
	Command, Absent []string
	// Exited reports that Code and Signal say how it ended. Signal is "" without one.
	Exited bool
	Code   int
	Signal string
}

// Find returns the cause according to standard error, or else to standard output, or else to the
// exit.
func (p *Process) Find() Cause {
	c := p.absent(Find(p.State, p.Stderr, p.Set))
	if !c.Known {
		switch o := Find(p.State, p.Stdout, p.Set); {
		case o.Arguments && isTrouble(c.What): // a usage, after what is wrong
			c.Fix, c.Arguments = strings.TrimPrefix(c.Fix+"; "+o.Fix, "; "), true
		case o.Known || c.What == "" && p.State == Ended:
			c = o
		}
	}
	if c.Known || !p.Exited {
		return c
	}
	// A signal says more than output that has no trouble.
	if o, _ := lookup(exited, strings.TrimSpace(fmt.Sprintf("exit %d %s", p.Code, p.Signal))); o.Known && (c.What == "" || c.Fix == "" && p.Signal != "") {
		o.Said = c.Said
		return o
	}
	if p.Code == 0 && c.What == "" {
		return ofCommand(p.Command)
	}
	return c
}

// maxQuoted limits an output that is quoted whole, in bytes.
const maxQuoted = 400

var (
	// property matches the members of an error, as Node.js prints them, that name a value.
	property = lazyregexp.New(`^  (?:input|path|address|hostname): '(.{1,100})',?$`)
	// frame matches lines of stack traces and of the code that they quote.
	frame = lazyregexp.New(`^\s*(at |File "|node:|Node\.js v|Traceback|note: run with|\^|~|[}\])]|\.\.\.|[|+\s-]+$)|new [A-Za-z]*Error\(|;\s*$|\{\s*$|^\s+(return|raise|import|from|await|throw)\b|This error originated|"level": ?"(info|debug)"`)
	// suggests matches lines in which a program says what to do.
	suggests = lazyregexp.New(`(?i)^(?:\W*(?:\[[^\]]*\]\s*)?(?:\d+[.)]\s*)?)((?:(?:to fix|solution|hint|help|tip|recommended|please|try|run|use|install|set|create|add|provide|specify|make sure|ensure|update|upgrade|log ?in|sign ?in)\b|you (?:can|may|must|need)\b).*)`)
)

// quoted returns a statement with what else a short output says, such as the warning before it that
// names the folder. Stack traces do not count.
func quoted(said string, lines []string) string {
	var kept []string
	for _, line := range lines {
		if line = strings.Trim(line, boxes+"\r"); line != "" && !frame().MatchString(line) {
			kept = append(kept, line)
		}
	}
	if text := strings.Join(kept, " "); len(kept) <= 6 && len(text) <= maxQuoted && strings.Contains(text, oneLine(said)) {
		return text
	}
	return said
}

// suggestion returns the first things to do that the program itself names, or "".
func suggestion(lines []string) string {
	var list []string
	for _, line := range lines {
		if m := suggests().FindStringSubmatch(line); m != nil && len(list) < 2 && !noise().MatchString(line) {
			list = append(list, m[1])
		}
	}
	return strings.Join(list, " ")
}

// noFile matches statements about a file that cannot be opened.
var noFile = lazyregexp.New(`(?i)no such file|ENOENT|os error [23]\b|(?:file|folder|director(?:y|ies)|path)s?\b[^\n]*(?:not found|do(?:es)? not exist|not accessible)|cannot (?:access|find|open) (?:the )?(?:file|folder|directory|path)`)

// absent names the argument that is the path of no file, if neither the server nor a certain cause
// does.
func (p *Process) absent(c Cause) Cause {
	if len(p.Absent) == 0 || c.Known && c.Specific || !noFile().MatchString(c.Said) ||
		slices.ContainsFunc(p.Absent, func(path string) bool { return strings.Contains(c.Said, path) }) {
		return c
	}
	c.What, c.Known = "there is no file or folder "+strings.Join(p.Absent, ", ")+", which an argument names", true
	c.Fix = "correct the path in args: write it in full"
	return c
}

// unexplained returns the cause if no entry of the table matches: the statement, and the usage that
// may come with it.
func unexplained(said string, lines []string) Cause {
	for i, line := range lines {
		m := usageText().FindStringSubmatch(line)
		if m == nil {
			continue
		}
		arguments := strings.TrimSpace(m[1])
		if arguments == "" && i+1 < len(lines) && !strings.HasPrefix(strings.TrimSpace(lines[i+1]), "-") {
			arguments = strings.TrimSpace(lines[i+1])
		}
		c := Cause{What: oneLine(said), Said: oneLine(said)}
		if namesArgument().MatchString(arguments) {
			c.Fix = "its usage is: " + arguments
		}
		if said == "" || said == strings.TrimSpace(line) {
			c.What, c.Known, c.Arguments = "it only prints its usage: an argument or a subcommand is missing", true, true
			c.Fix = cmp.Or(c.Fix, "see its usage for the arguments, such as serve or stdio")
		}
		return c
	}
	c := Cause{What: oneLine(said), Said: oneLine(said)}
	if list := namesIn(said); len(list) == 1 && wrong().MatchString(said) {
		c.Fix = "check the value of the environment variable " + list[0]
	}
	return c
}

// usageText matches the beginning of a usage text.
var usageText = lazyregexp.New(`^\W{0,2}(?:[Uu]sage:|USAGE:?(?:\s|$))(.*)`)

// namesArgument matches a usage that names more than options.
var namesArgument = lazyregexp.New(`<|--\w|\s[A-Z_]{3,}\b|://`)

// A Response is a response over HTTP.
type Response struct {
	Status int
	// Host and Path are those of the request.
	Host, Path string
	Body       string
	// Header returns a header of the response, or "". It may be nil.
	Header func(name string) string
	// Later reports that the request came after a handshake that succeeded.
	Later bool
}

// Find returns the cause of the response.
func (r *Response) Find() Cause {
	if r.Later {
		if c, ok := lookup(later, r.text()); ok {
			return c
		}
	}
	c, _ := lookup(overHTTP, r.text())
	return c
}

// Who returns which program responds, if it is no MCP server by itself, and what that means.
func (r *Response) Who() Cause {
	c, _ := lookup(program, r.text())
	return c
}

func (r *Response) text() string {
	text := fmt.Sprintf("%d\nHost: %s\nPath: %s\n", r.Status, r.Host, r.Path)
	for _, name := range []string{"Location", "Server", "X-Powered-By", "Via", "Content-Type"} {
		if r.Header != nil {
			text += name + ": " + r.Header(name) + "\n"
		}
	}
	return text + "\n" + r.Body
}

// lookup returns the first cause of the table that matches.
func lookup(state State, text string) (Cause, bool) {
	for _, b := range causes() {
		if b.state != state || b.not != nil && b.not.MatchString(text) {
			continue
		}
		for _, re := range b.match {
			at := re.FindStringSubmatchIndex(text)
			if at == nil {
				continue
			}
			expand := func(template string) string {
				return strings.TrimRight(oneLine(string(re.ExpandString(nil, template, text, at))), ": ")
			}
			c := Cause{What: expand(b.what), Fix: expand(b.fix), Known: b.what != "", Arguments: b.arguments, Specific: !b.general}
			if state == "" && !b.misleads {
				c.Said = oneLine(text)
			}
			if !c.Known {
				c.What = c.Said
			}
			return c, true
		}
	}
	return Cause{}, false
}

// aside matches lines within a statement that say nothing.
var aside = lazyregexp.New(`^\s*(For further information|\^+$|$)`)

// maxStatement limits the lines of a statement.
const maxStatement = 16

// statement returns the lines, joined by line ends, in which a program says what went wrong. It is
// "" if there are none.
func statement(lines []string) string {
	all := strings.Join(lines, "\n")
	for _, f := range forms() {
		if f.when != nil && !f.when.MatchString(all) {
			continue
		}
		at := -1
		for i, line := range lines {
			if f.begin.MatchString(line) && (f.not == nil || !f.not.MatchString(line)) {
				if at = i; !f.last {
					break
				}
			}
		}
		if at < 0 {
			continue
		}
		first := lines[at]
		if m := f.begin.FindStringSubmatch(first); len(m) > 1 && m[1] != "" {
			first = m[1]
		}
		found := []string{first}
		for _, line := range lines[at+1:] {
			if len(found) == maxStatement || f.stop == nil || f.stop.MatchString(line) {
				break
			}
			if !aside().MatchString(line) {
				found = append(found, line)
			}
		}
		if strings.HasSuffix(first, ":") && len(found) == 1 {
			for _, line := range lines[at+1 : min(at+4, len(lines))] {
				if strings.TrimSpace(line) == "" {
					break
				}
				found = append(found, line)
			}
		}
		return strings.Trim(strings.Join(found, "\n"), boxes)
	}
	if all = strings.TrimSpace(all); !strings.Contains(all, "\n") {
		return all
	}
	return ""
}

// boxes are the characters of boxes around messages.
const boxes = " \t\n│┃║╭╮╰╯─━═┌┐└┘|"

// oneLine joins the lines of a text.
func oneLine(text string) string {
	var words []string
	for line := range strings.Lines(text) {
		if line = strings.Trim(line, boxes+"\r"); line != "" {
			words = append(words, line)
		}
	}
	return strings.Join(words, " ")
}

var (
	trouble = lazyregexp.New(`(?i)\b(error|fatal|panic|exception|denied|missing|required|not set|not found|not defined|must|failed|failure|cannot|can't|could not|unable|invalid|no such|refused|not provided)\b|[a-z](Error|Exception)\b`)
	// noise matches lines of usage texts, source code and stack traces, which explain nothing, and
	// warnings.
	noise = lazyregexp.New(`new [A-Za-z]*Error\(|^\s*(-{1,2}[A-Za-z]|[Uu]sage\b|at |File "|\.\.\.|\^|[}\])])|(?i)\bwarn(ing)?\b|deprecat`)
)

func isTrouble(line string) bool { return trouble().MatchString(line) && !noise().MatchString(line) }

// ofCommand returns the cause that a command line gives by itself, if the program ended without a
// word.
func ofCommand(command []string) Cause {
	if len(command) > 1 && (strings.Contains(command[0], "docker") || strings.Contains(command[0], "podman")) && command[1] == "run" &&
		!slices.ContainsFunc(command, func(arg string) bool {
			return arg == "--interactive" || len(arg) > 1 && arg[0] == '-' && arg[1] != '-' && strings.Contains(arg, "i")
		}) {
		return Cause{What: "docker run lacks -i, so the server gets no input", Fix: "add -i after run in the arguments", Known: true}
	}
	return Cause{What: "it exits as if finished", Fix: "perhaps it needs an argument, such as stdio or serve"}
}
