package cause

import (
	"cmp"
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"mcpwire/internal/text/lazyregexp"
)

var (
	// colors matches the sequences that set colors and styles on a terminal.
	colors = lazyregexp.New(`\x1b\[[0-9;:]*m`)
	// logged matches a line of a log in key=value form that reports an error.
	logged   = lazyregexp.New(`(?i)\blevel="?(?:error|fatal|panic|critical|dpanic)"?\s`)
	logValue = lazyregexp.New(`\b(msg|message|err|error)=("(?:[^"\\]|\\.)*"|\S+)`)
	// severe are the levels of errors in structured logs, as text or numbers (pino, bunyan).
	severe = []string{"error", "fatal", "panic", "critical", "50", "60", "err"}
)

// normalize removes colors, and turns errors of structured logs into plain lines.
func normalize(lines []string) []string {
	var list []string
	for _, line := range lines {
		line = strings.TrimRight(colors().ReplaceAllString(line, ""), "\r\n\t ")
		if text := structured(line); text != "" {
			line = "error: " + text
		}
		list = append(list, line)
	}
	return list
}

// structured returns the message of a line of a structured log that reports an error, or "".
func structured(line string) string {
	var parts []string
	add := func(text string) {
		if text != "" && !slices.Contains(parts, text) {
			parts = append(parts, text)
		}
	}
	if logged().MatchString(line) {
		for _, m := range logValue().FindAllStringSubmatch(line, 4) {
			text := m[2]
			if plain, err := strconv.Unquote(text); err == nil {
				text = plain
			}
			add(text)
		}
		return strings.Join(parts, ": ")
	}
	var object map[string]any
	if !strings.HasPrefix(line, "{") || json.Unmarshal([]byte(line), &object) != nil {
		return ""
	}
	level := ""
	for _, name := range []string{"level", "severity", "lvl"} {
		switch v := object[name].(type) {
		case string:
			level = strings.ToLower(v)
		case float64:
			level = strconv.Itoa(int(v))
		}
	}
	if !slices.Contains(severe, level) {
		return ""
	}
	for _, name := range []string{"msg", "message", "error", "err", "reason"} {
		switch v := object[name].(type) {
		case string:
			add(v)
		case map[string]any:
			text, _ := v["message"].(string)
			add(text)
		}
	}
	return strings.Join(parts, ": ")
}

var (
	// variableName matches names that environment variables may have.
	variableName = lazyregexp.New(`\b[A-Z][A-Z0-9]{1,40}(?:_[A-Z0-9]{1,40}){1,6}\b`)
	// named matches a name that a line calls a variable, or reads as one.
	named = lazyregexp.New("(?i:environment variables?|env vars?|env variables?|env(?:ironment)?\\.|environ\\[|getenv\\(|KeyError: )[:\\s]*[`'\"]?([A-Z][A-Z0-9_]{2,60})\\b" +
		"|^[`'\"]?([A-Z][A-Z0-9_]{2,60})[`'\"]? (?i:environment variable|env var|is (?:not set|required|missing|unset))")
	// placeholder matches a value in a usage: <NAME>, [NAME], --flag NAME, --flag=NAME. It also
	// matches the input that pydantic quotes: it has names of settings that are not at fault.
	placeholder = lazyregexp.New(`\binput_value=.*|<[^<>]*>|\[[A-Z_.]+\]|-{1,2}[A-Za-z][\w-]*[ =][A-Z][A-Z0-9_]+\b`)
	// constant matches names of errors, which look like variables.
	constant = lazyregexp.New(`^(ERR|E|NPM|GLIBC|GLIBCXX|CXXABI|UNABLE_TO|DEPTH_ZERO|SELF_SIGNED|CERT|SSL|TLS|SQLITE|STATUS|CODE|HTTP|GRPC|RPC|INVALID|UNKNOWN|NOT|NO|ER|HPE|UND|WSA|OCI)_|_(ERROR|ERR|EXCEPTION|FAILED|FAILURE|NOT_FOUND|DENIED|REFUSED|TIMEOUT|TIMED_OUT|EXPIRED|SIGNATURE|UNAVAILABLE|EXCEEDED|EXHAUSTED|ARGUMENT|NOT_EXIST|SCHEMA|MODULE_VERSION)$`)
	lacks    = lazyregexp.New(`(?i)KeyError|require[ds]?\b|missing|not (?:been )?(?:set|defined|provided|specified|configured|found in (?:the )?env)|unset|must (?:be )?(?:set|provide|specif|defin)|undefined|no value|please (?:set|provide|specify)|(?:^|[^a-z])(?:set|export|provide|pass)\b|\bneeds?\b|environment variables?|env vars?|cannot be empty|is empty|NotPresent|is not present`)
	optional = lazyregexp.New(`(?i)\boptional|\bdefault|deprecat|for example|e\.g\.|\bwarn|\bignored|\bif (?:you|needed)|\balternative|\bcustom\b|^\W*to (?:use|override|change|customi)|example:|^\s*(#|//|note:|help:|hint:|tip:)`)
	wrong    = lazyregexp.New(`(?i)\binvalid|not a valid|not valid|must be (?:a|an|one|either|in|at|between|greater|positive|[0-9'"])|malformed|cannot parse|could not parse|failed to parse|expected|does not match`)
	// ways matches a text that names several ways, of which a variable may be one.
	ways = lazyregexp.New(`(?i)following ways|\bone of (?:the following|these)\b|\beither\b|\balternatively\b|\bor (?:set|export|define|via)\b`)
	// noValue matches an error about a missing value.
	noValue = lazyregexp.New(`^[A-Za-z.]*(Error|Exception)\b.*(undefined|null|None)`)
	// reads matches source code that reads a variable.
	reads = lazyregexp.New(`(?:process\.env\.|process\.env\[["']|environ\[["']|[gG]etenv\(["'])([A-Z][A-Z0-9_]{2,60})`)
	// usage matches the line where the usage text of a program begins.
	usage = lazyregexp.New(`^\s*([Uu]sage|USAGE|[Oo]ptions|[Ff]lags|[Ee]xamples?|[Aa]rguments|[Cc]ommands)\b`)
)

// namesIn returns the variables that a line names.
func namesIn(line string) []string {
	line = placeholder().ReplaceAllString(line, "")
	list := variableName().FindAllString(line, 20)
	for _, m := range named().FindAllStringSubmatch(line, 10) {
		list = append(list, cmp.Or(m[1], m[2]))
	}
	return slices.DeleteFunc(list, func(s string) bool {
		return constant().MatchString(s) || strings.ToUpper(s) != s || slices.Contains([]string{"HTTP", "HTTPS", "JSON", "YAML", "API", "URL", "MCP", "NOT", "THE", "AND"}, s)
	})
}

// variables returns the variables that a program lacks: those of its statement, or else all that
// its output calls for.
func variables(said string, lines []string) []string {
	find := func(lines []string) (list []string) {
		before := ""
		for i, line := range lines {
			if i > 0 && usage().MatchString(line) {
				break
			}
			// A list of names follows a line that ends with a colon.
			wants := lacks().MatchString(line) || strings.HasSuffix(before, ":") && lacks().MatchString(before)
			if wants && !optional().MatchString(line) && !wrong().MatchString(line) && !code(line) {
				list = append(list, namesIn(line)...)
			}
			if !strings.HasPrefix(strings.TrimSpace(line), "-") {
				before = line
			}
		}
		slices.Sort(list)
		return slices.Compact(list)
	}
	if list := find(strings.Split(said, "\n")); len(list) > 0 {
		return list
	}
	if list := find(lines); len(list) > 0 {
		return list
	}
	if !noValue().MatchString(said) {
		return nil
	}
	var list []string
	for _, line := range lines {
		if m := reads().FindStringSubmatch(line); m != nil {
			list = append(list, m[1])
		}
	}
	slices.Sort(list)
	return slices.Compact(list)
}

// code reports whether a line is source code or a stack trace.
func code(line string) bool {
	line = strings.TrimSpace(line)
	return strings.HasPrefix(line, "at ") || strings.HasPrefix(line, "File \"") || strings.Contains(line, "Error(") ||
		strings.HasSuffix(line, ";") || strings.HasSuffix(line, "{")
}

// missing returns the cause that variables are missing. With more than one, it is not known which.
func missing(names []string, said string, set []string) Cause {
	const how = "for hosts, set it in env of the configuration"
	if len(names) > 1 {
		names = names[:min(len(names), 6)]
		return Cause{What: oneLine(said), Said: oneLine(said), Fix: "it mentions " + strings.Join(names, ", ") + ": set those that it needs with --env NAME=value; " + how}
	}
	v := names[0]
	if ways().MatchString(said) {
		return Cause{What: oneLine(said), Said: oneLine(said), Fix: "one of the ways that it names is to set " + v + " in env"}
	}
	if slices.Contains(set, v) {
		return Cause{What: oneLine(said), Said: oneLine(said), Fix: "it does not accept the value of " + v + ", although it is configured: check the value"}
	}
	return Cause{Said: oneLine(said), What: v + " is missing", Fix: "it needs the environment variable " + v + ": --env " + v + "=value sets it here; " + how, Variable: v, Known: true}
}

var (
	// pydantic matches a field that pydantic reports: its name, then the indented reason.
	pydantic = lazyregexp.New(`(?m)^(\w[\w.]*)\n\s+(.+?)(?: \[type=(\w+))`)
	// zodIssues matches the beginning of the issues of zod.
	zodIssues = lazyregexp.New(`\[\s*\{\s*"`)
	// zodPretty matches an issue of z.prettifyError, zodShown one of console.error, zodFlat one of
	// flatten.
	zodPretty = lazyregexp.New(`✖ (.*)\n\s*→ at (\S+)`)
	zodShown  = lazyregexp.New(`path: \[ ?'(\w+)'[^\]]*\],\s*message: '([^']*)'`)
	zodFlat   = lazyregexp.New(`(?m)^\s*"?(\w+)"?: \[\s*['"](.*)['"]\s*\]`)
)

// A setting is a field of a configuration that a program rejects, and why.
type setting struct{ name, why string }

// A zodIssue is an issue of zod 4. Errors has those of each member of a union.
type zodIssue struct {
	Path    []any        `json:"path"`
	Message string       `json:"message"`
	Values  []any        `json:"values"`
	Errors  [][]zodIssue `json:"errors"`
}

// options returns the values that z allows, and its members.
func (z *zodIssue) options() (list []string) {
	for _, v := range z.Values {
		list = append(list, fmt.Sprint(v))
	}
	for _, member := range z.Errors {
		for i := range member {
			list = append(list, member[i].options()...)
		}
	}
	return list
}

// settings returns the fields that validation libraries report.
func settings(said string, lines []string) (list []setting) {
	if strings.Contains(said, "validation error") {
		for _, m := range pydantic().FindAllStringSubmatch(said, 8) {
			list = append(list, setting{m[1], m[2]})
		}
	}
	for _, m := range zodPretty().FindAllStringSubmatch(said, 8) {
		list = append(list, setting{m[2], m[1]})
	}
	for _, m := range zodShown().FindAllStringSubmatch(strings.Join(lines, "\n"), 8) {
		list = append(list, setting{m[1], m[2]})
	}
	if !strings.Contains(said, `"path":`) {
		for _, m := range zodFlat().FindAllStringSubmatch(said, 8) {
			list = append(list, setting{m[1], m[2]})
		}
		return list
	}
	all := strings.Join(lines, "\n")
	at := zodIssues().FindStringIndex(all)
	var issues []zodIssue
	if at == nil || json.NewDecoder(strings.NewReader(all[at[0]:])).Decode(&issues) != nil {
		return list
	}
	for _, z := range issues[:min(len(issues), 8)] {
		var path []string
		for _, p := range z.Path {
			path = append(path, fmt.Sprint(p))
		}
		why := z.Message
		if options := z.options(); len(z.Errors) > 0 && len(options) > 0 {
			why += ": expected one of " + strings.Join(options, ", ")
		}
		list = append(list, setting{cmp.Or(strings.Join(path, "."), "a value"), why})
	}
	return list
}

// absent matches what validation libraries say of a field without a value.
var absent = lazyregexp.New(`(?i)^(field )?required$|received undefined|expected \w+, received undefined|missing`)

// missingSettings returns the cause that fields of a configuration are missing or invalid.
func missingSettings(list []setting, said string) Cause {
	var lack, bad []string
	for _, s := range list {
		if absent().MatchString(s.why) {
			lack = append(lack, s.name)
		} else {
			bad = append(bad, s.name+" ("+s.why+")")
		}
	}
	if len(bad) == 0 && len(lack) == 1 && variableName().MatchString(lack[0]) {
		return missing(lack, said, nil)
	}
	c := Cause{Known: true, Specific: true, Said: oneLine(said), Fix: "set them in env of the configuration, or as arguments: fields are often variables of the same name in capital letters, maybe with a prefix"}
	switch {
	case len(bad) == 0:
		c.What = "settings are missing: " + strings.Join(lack, ", ")
	case len(lack) == 0:
		c.What, c.Fix = "settings are invalid: "+strings.Join(bad, ", "), "correct them in env or args of the configuration"
	default:
		c.What = "settings are missing: " + strings.Join(lack, ", ") + "; and invalid: " + strings.Join(bad, ", ")
	}
	return c
}
