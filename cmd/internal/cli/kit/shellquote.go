package kit

import (
	"crypto/rand"
	"net/url"
	"slices"
	"strings"

	"mcpwire/capture"
	"mcpwire/cmd/internal/text/shellword"
	"mcpwire/internal/text/lazyregexp"
	"mcpwire/internal/text/printable"
)

// ShellLine quotes a command for a POSIX shell. Every command that output suggests is from it or
// from [ShellText].
func ShellLine(argv ...string) string { return ShellText(PlainArgs(argv...)) }

// An Arg is an argument of a command that output suggests: text, with shell variables instead
// of secrets.
type Arg []shellPart

// A shellPart is text, or the name of a variable.
type shellPart struct{ text, variable string }

// PlainArgs returns arguments without variables.
func PlainArgs(argv ...string) []Arg {
	args := make([]Arg, len(argv))
	for i, a := range argv {
		args[i] = Arg{{text: a}}
	}
	return args
}

// ShellText quotes a command for a POSIX shell.
func ShellText(args []Arg) string {
	words := make([]string, len(args))
	for i, a := range args {
		if words[i] = a.quoted(); i == 0 && strings.Contains(a.Text(), "=") && !strings.ContainsAny(words[i], `'"`) {
			words[i] = "'" + words[i] + "'" // it would be an assignment
		}
	}
	return strings.Join(words, " ")
}

func (a Arg) quoted() string {
	var b strings.Builder
	for _, p := range a {
		switch {
		case p.variable != "":
			b.WriteString(`"$` + p.variable + `"`)
		case p.text != "" || len(a) == 1:
			b.WriteString(shellword.Word(p.text))
		}
	}
	return b.String()
}

// Text returns the argument with ${NAME} instead of secrets.
func (a Arg) Text() string {
	var b strings.Builder
	for _, p := range a {
		if p.variable != "" {
			b.WriteString("${" + p.variable + "}")
		} else {
			b.WriteString(printable.Line(p.text))
		}
	}
	return b.String()
}

// A SecretNames finds secrets in command lines and names a variable for each. The same secret gets
// the same variable wherever it occurs.
type SecretNames struct {
	Redactor  *capture.Redactor
	redaction *capture.Redaction
	// variables are keyed by the hash of the secret.
	variables shellword.Variables
}

// NewSecretNames returns names with a key of their own for the hashes of secrets.
func NewSecretNames() *SecretNames {
	key := make([]byte, 32)
	rand.Read(key) // never fails
	redaction := &capture.Redaction{Key: key}
	return &SecretNames{Redactor: capture.NewRedactor(redaction), redaction: redaction}
}

// hiddenPart matches what a capture has instead of a secret, with its kind and a keyed hash.
var hiddenPart = lazyregexp.New(`~redacted:([a-z]+):([0-9a-f]+):[0-9]+~`)

// assignment matches NAME=value, or a flag with its value.
var assignment = lazyregexp.New(`^(-{0,2}[A-Za-z_][A-Za-z0-9_.-]*)=(.+)$`)

// Args returns arguments with variables instead of secrets.
func (n *SecretNames) Args(argv ...string) []Arg {
	// The name before a value decides whether it is a secret, as for a flag.
	parts := []string{""}
	for _, a := range argv {
		if m := assignment().FindStringSubmatch(a); m != nil {
			parts = append(parts, "--"+strings.TrimLeft(m[1], "-"), m[2])
		} else {
			parts = append(parts, a)
		}
	}
	shown := capture.NewRedactor(n.redaction).Args(parts)
	args := make([]Arg, len(argv))
	at := 0 // in parts
	for i, a := range argv {
		at++
		m := assignment().FindStringSubmatch(a)
		switch {
		case m != nil:
			at++
			args[i] = append(Arg{{text: m[1] + "="}}, n.Split(shown[at], parts[at-1])...)
			if !slices.ContainsFunc(args[i], func(p shellPart) bool { return p.variable != "" }) {
				args[i] = n.Split(a, "")
			}
		default:
			args[i] = n.Split(shown[at], parts[at-1])
		}
	}
	return args
}

// URL returns a URL without userinfo, and with variables instead of secrets.
func (n *SecretNames) URL(raw string) Arg {
	u, err := url.Parse(raw)
	if err != nil {
		return Arg{{text: "URL"}}
	}
	u.User = nil
	return n.Split(n.Redactor.URL(u.String()), "")
}

// Split replaces the placeholders in an argument by variables. before is the argument before it.
func (n *SecretNames) Split(text, before string) Arg {
	var a Arg
	for {
		at := hiddenPart().FindStringSubmatchIndex(text)
		if at == nil {
			break
		}
		name := text[at[2]:at[3]]
		switch head := strings.TrimRight(text[:at[0]], `"'`); {
		case strings.HasSuffix(head, "="):
			head = head[:len(head)-1]
			name = head[strings.LastIndexAny(head, "=&?; /")+1:]
		case at[0] == 0 && at[1] == len(text) && strings.HasPrefix(before, "-") && len(before) > 2:
			name = before
		}
		if at[0] > 0 {
			a = append(a, shellPart{text: text[:at[0]]})
		}
		a = append(a, shellPart{variable: n.variable(text[at[4]:at[5]], name)})
		text = text[at[1]:]
	}
	if text != "" || a == nil {
		a = append(a, shellPart{text: text})
	}
	return a
}

// variable returns the variable for the secret with a hash. A new one is named after name.
func (n *SecretNames) variable(hash, name string) string {
	name = strings.Trim(shellword.Identifier(name), "_")
	switch {
	case name == "" || name[0] <= '9':
		name = "SECRET"
	case slices.Contains(shellVariables, name):
		name = "SECRET_" + name
	}
	return n.variables.Name(hash, "", name)
}

// shellVariables are the variables that a shell or the programs it starts need.
var shellVariables = []string{"CDPATH", "ENV", "HOME", "IFS", "LANG", "PATH", "PWD", "SHELL", "TERM", "TMPDIR", "USER"}

// VariablesOf returns the variables that a command needs, sorted.
func VariablesOf(args []Arg) []string {
	var names []string
	for _, a := range args {
		for _, p := range a {
			if p.variable != "" {
				names = append(names, p.variable)
			}
		}
	}
	slices.Sort(names)
	return slices.Compact(names)
}
