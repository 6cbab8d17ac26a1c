package cause

import (
	"slices"
	"strings"

	"mcpwire/cmd/internal/text/spelling"
	"mcpwire/internal/text/lazyregexp"
)

var (
	// badArgument matches the argument that a statement calls unknown.
	badArgument = lazyregexp.New(`(?:^|[\s'"` + "`" + `:])(--?[A-Za-z][\w-]*)|argument ['"]?(\w[\w-]*)`)
	// option matches options in a usage.
	option = lazyregexp.New(`(?:^|[\s\[({|,/│])(--?[A-Za-z][\w-]+)`)
	// choices matches a list of subcommands in the usage of argparse.
	choices = lazyregexp.New(`\{(\w[\w,-]*)\}`)
	// commands matches the line above a list of subcommands.
	commands = lazyregexp.New(`(?i)^\W*(?:(?:available|the|core|all|main|sub)[ -]*)*commands(?: are)?\b[^\w:]*:?$`)
	command  = lazyregexp.New(`^\W{1,8}([a-z][\w:-]*)`)
	// advice matches what a program itself suggests, or allows.
	advice = lazyregexp.New(`(?i)(?:did you mean[^\n]*(?:\n\s+\S+)?|similar [^\n]* exists?: [^\n]*|possible (?:values|options): [^\]\)\n]*|\(?allowed choices are [^\n)]*|choices: [^\n]*|must be one of:?[^\n]*|supported [^\n:]*: [^\n]*)`)
)

// advise returns what the output says about right arguments, to complete the remedy of a wrong one.
func advise(c Cause, lines []string) string {
	var parts []string
	all := strings.Join(lines, "\n")
	if text := oneLine(advice().FindString(all)); text != "" && !strings.Contains(c.What, text) {
		parts = append(parts, "it says: "+text)
	}
	bad := ""
	if m := badArgument().FindStringSubmatch(c.What); m != nil {
		bad = m[1] + m[2]
	}
	known := subcommands(lines)
	if strings.HasPrefix(bad, "-") || len(known) == 0 && bad != "" {
		known = nil
		for _, line := range lines {
			if trouble().MatchString(line) && strings.Contains(line, bad) {
				continue
			}
			for _, m := range option().FindAllStringSubmatch(line, 50) {
				known = append(known, m[1])
			}
		}
	}
	slices.Sort(known)
	known = slices.DeleteFunc(slices.Compact(known), func(s string) bool { return s == bad || s == "--help" || s == "--version" })
	if like := slices.DeleteFunc(slices.Clone(known), func(s string) bool { return !alike(bad, s) }); len(like) > 0 && len(like) <= 5 {
		parts = append(parts, "similar: "+strings.Join(like, ", "))
	} else if len(known) > 0 {
		parts = append(parts, "its usage has "+strings.Join(known[:min(len(known), 12)], ", "))
	}
	return strings.Join(parts, "; ")
}

// subcommands returns those that a usage lists.
func subcommands(lines []string) (list []string) {
	listed := false
	for _, line := range lines {
		m := command().FindStringSubmatch(line)
		switch {
		case commands().MatchString(line):
			listed = true
		case listed && m != nil:
			list = append(list, m[1])
		case strings.TrimSpace(line) == "" || !strings.HasPrefix(line, " "):
			listed = false
		}
		if m := choices().FindStringSubmatch(line); m != nil && usage().MatchString(line) {
			list = append(list, strings.Split(m[1], ",")...)
		}
	}
	return list
}

// alike reports whether two names may be meant for each other: they differ little, or share a word.
func alike(a, b string) bool {
	plain := func(s string) string { return strings.ToLower(strings.NewReplacer("-", "", "_", "").Replace(s)) }
	short, long := plain(a), plain(b)
	if len(short) > len(long) {
		short, long = long, short
	}
	if short == "" {
		return false
	}
	if spelling.Distance(short, long) <= min(2, len(short)/3) || len(short) >= 3 && strings.Contains(long, short) {
		return true
	}
	words := strings.FieldsFunc(strings.ToLower(a), func(r rune) bool { return r == '-' || r == '_' })
	return slices.ContainsFunc(words, func(w string) bool {
		return len(w) >= 4 && strings.Contains(long, w) && strings.Contains(strings.ToLower(b), w)
	})
}
