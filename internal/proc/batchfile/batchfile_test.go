package batchfile

import (
	"errors"
	"os"
	"strings"
	"testing"
	"unicode"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"
)

// Installed shims.
const (
	// npmShim is written by cmd-shim of npm.
	npmShim = "@ECHO off\r\nGOTO start\r\n:find_dp0\r\nSET dp0=%~dp0\r\nEXIT /b\r\n:start\r\nSETLOCAL\r\nCALL :find_dp0\r\n\r\n" +
		"IF EXIST \"%dp0%\\node.exe\" (\r\n  SET \"_prog=%dp0%\\node.exe\"\r\n) ELSE (\r\n  SET \"_prog=node\"\r\n  SET PATHEXT=%PATHEXT:;.JS;=;%\r\n)\r\n\r\n" +
		"endLocal & goto #_undefined_# 2>NUL || title %COMSPEC% & \"%_prog%\"  \"%dp0%\\..\\mcp-remote\\dist\\proxy.js\" %*\r\n"
	// corepackShim is written by corepack, and in this form by yarn and pnpm.
	corepackShim = "@SETLOCAL\r\n@IF EXIST \"%~dp0\\node.exe\" (\r\n  \"%~dp0\\node.exe\"  \"%~dp0\\..\\dist\\npx.js\" %*\r\n) ELSE (\r\n" +
		"  @SET PATHEXT=%PATHEXT:;.JS;=;%\r\n  node  \"%~dp0\\..\\dist\\npx.js\" %*\r\n)\r\n"
)

func npx(t testing.TB) string {
	script, err := os.ReadFile("testdata/npx.cmd")
	if err != nil {
		t.Fatal(err)
	}
	return string(script)
}

func TestIs(t *testing.T) {
	got := map[string]bool{}
	want := map[string]bool{
		`C:\nodejs\npx.cmd`: true, `C:\a\B.BAT`: true, `x.bat.`: true, `x.cmd. . `: true,
		`C:\nodejs\node.exe`: false, `C:\x.cmd\node`: false, `cmd`: false, ``: false, `x.cmd.exe`: false,
	}
	for path := range want {
		got[path] = Is(path)
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}

func TestCommandLine(t *testing.T) {
	const path = `C:\Program Files\nodejs\npx.cmd`
	const head = `"C:\Windows\system32\cmd.exe" /d /e:on /v:off /s /c ""C:\Program Files\nodejs\npx.cmd"`
	for _, test := range []struct {
		name string
		shim bool
		args []string
		want string // between head and the last quote
	}{
		{"none", false, nil, ``},
		{"plain", true, []string{"-y", "mcp-remote", ""}, ` "-y" "mcp-remote" ""`},
		{"URL", true, []string{"https://h/mcp?a=1&b=2"}, ` "https://h/mcp?a=1&b=2"`},
		{"percent", true, []string{"postgresql://u:p%40w@h", "%USERNAME%"}, ` "postgresql://u:p%%cd:~,%40w@h" "%%cd:~,%USERNAME%%cd:~,%"`},
		{"quote", false, []string{`x"y`, "p&echo INJECTED"}, ` "x""y" "p&echo INJECTED"`},
		{"quote through a shim", true, []string{`x"y`, "p&echo INJECTED"}, ` ^^^"x\^^^"y^^^" "p&echo INJECTED"`},
		{"JSON", false, []string{`{"a":"b c"}`}, ` "{""a"":""b c""}"`},
		{"JSON through a shim", true, []string{`{"a":"(50%) ^!"}`}, ` ^^^"{\^^^"a\^^^":\^^^"^^^(50%%cd:~,%^^^) ^^^^^^^!\^^^"}^^^"`},
		{"backslashes", false, []string{`a\b`, `C:\dir\`, `\\"`, `\"\`}, ` "a\b" "C:\dir\\" "\\\\""" "\\""\\"`},
		{"backslashes through a shim", true, []string{`C:\dir\`, `a\"`}, ` "C:\dir\\" ^^^"a\\\^^^"^^^"`},
		{"options of cmd.exe", true, []string{"/c", "a|b>c<d", "^!"}, ` "/c" "a|b>c<d" "^!"`},
		{"spaces", true, []string{" a\tb ", "ü€😀"}, " \" a\tb \" \"ü€😀\""},
	} {
		t.Run(test.name, func(t *testing.T) {
			got, err := commandLine(`C:\Windows\system32\cmd.exe`, path, test.shim, test.args)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(head+test.want+`"`, got); diff != "" {
				t.Error(diff)
			}
		})
	}
}

func TestCommandLineRejects(t *testing.T) {
	for _, test := range []struct {
		name, path string
		args       []string
		want       string
	}{
		{"line feed", "x.cmd", []string{"-t", "a\nsecret"}, "argument 2 cannot be passed to a batch file: it contains a line break or a NUL"},
		{"carriage return", "x.cmd", []string{"\rsecret"}, "argument 1 cannot be passed to a batch file: it contains a line break or a NUL"},
		{"NUL", "x.cmd", []string{"secret\x00"}, "argument 1 cannot be passed to a batch file: it contains a line break or a NUL"},
		{"name", `x" & echo.cmd`, nil, "the name of the program cannot be passed to a batch file: it contains a quote, a NUL or a line break"},
		{"length", "x.cmd", []string{strings.Repeat("😀", 4100)}, "too much cannot be passed to a batch file: the command line has 8244 characters, but cmd.exe accepts only 8191"},
	} {
		for _, shim := range []bool{false, true} {
			line, err := commandLine("cmd.exe", test.path, shim, test.args)
			if !errors.Is(err, ErrArguments) || err.Error() != test.want || line != "" {
				t.Errorf("%s: got %q and %v, want %s", test.name, line, err, test.want)
			}
		}
	}
}

func TestIsShim(t *testing.T) {
	const start = "@echo off\r\n"
	for _, test := range []struct {
		name, script string
		want         bool
	}{
		{"npm", npmShim, true},
		{"npx", npx(t), true},
		{"corepack", corepackShim, true},
		{"one line", `@"C:\Program Files (x86)\srv.exe" --stdio %*`, true},
		{"one argument", start + `if "%~1"=="" exit` + "\r\nnode x.js %*\r\n", false},
		{"arguments one by one", start + "node x.js %1 %2\r\n", false},
		{"shift", start + "shift\r\nnode x.js %*\r\n", false},
		{"no arguments", start + "node x.js\r\n", false},
		{"in quotes", start + `node x.js "%*"`, false},
		{"in a variable", start + "set ARGS=%*\r\nnode x.js %ARGS%\r\n", false},
		{"call", start + "call node x.js %*\r\n", false},
		{"call after a condition", start + "@if exist x call node x.js %*\r\n", false},
		{"another batch file", start + `"%~dp0\other.cmd" %*`, false},
		{"another shell", start + `cmd /c node x.js %*`, false},
		{"another shell by its variable", start + `"%ComSpec%" /c node x.js %*`, false},
		{"loop", start + "for %%i in (%*) do node %%i\r\n", false},
		{"a second command", start + "node x.js %* & exit /b\r\n", false},
		{"redirected", start + "node x.js %* 2>nul\r\n", false},
		{"pipe", start + "type x | node x.js %*\r\n", false},
		{"delayed expansion", start + "setlocal EnableDelayedExpansion\r\nnode x.js %*\r\n", false},
		{"too long", npmShim + strings.Repeat(":", maxShim), false},
		{"empty", "", false},
	} {
		if got := isShim([]byte(test.script)); got != test.want {
			t.Errorf("%s: got %v, want %v", test.name, got, test.want)
		}
	}
}

// A shell is a model of how cmd.exe reads a line: percent signs first, then quotes and carets.
type shell struct {
	// vars are the variables, by their names in upper case.
	vars map[string]string
}

// expand replaces variables on the line of a command, where an unknown one stays unchanged.
func (s shell) expand(line string) string {
	var b strings.Builder
	for i := 0; i < len(line); i++ {
		if line[i] != '%' {
			b.WriteByte(line[i])
			continue
		}
		rest := line[i+1:]
		end := strings.IndexAny(rest, "%:")
		if end < 0 {
			b.WriteByte('%')
			continue
		}
		value, ok := s.vars[strings.ToUpper(rest[:end])]
		if ok && rest[end] == ':' {
			// All parts and replacements are taken for empty, which they need not be but for :~,
			more := strings.IndexByte(rest[end:], '%')
			if ok = more >= 0; ok {
				end += more
				value = ""
			}
		}
		if !ok {
			b.WriteByte('%')
			continue
		}
		b.WriteString(value)
		i += 1 + end
	}
	return b.String()
}

// unescape removes the carets of a line. It returns false if the line has more than one command.
func (s shell) unescape(line string) (string, bool) {
	var b strings.Builder
	quoted := false
	for i := 0; i < len(line); i++ {
		c := line[i]
		switch {
		case c == '"':
			quoted = !quoted
		case quoted:
		case c == '^':
			i++
			if i == len(line) {
				return "", false
			}
			c = line[i]
		case strings.IndexByte("&|<>()\r\n", c) >= 0:
			return "", false
		}
		b.WriteByte(c)
	}
	return b.String(), true
}

// run reads a command line as cmd.exe does, and returns the arguments of the batch file as they
// are written in %*.
func (s shell) run(t *testing.T, line, path string) (args string, ok bool) {
	line, ok = strings.CutPrefix(line, `"cmd.exe" /d /e:on /v:off /s /c "`)
	if !ok {
		t.Fatalf("options: got %s", line)
	}
	line, ok = s.unescape(s.expand(strings.TrimSuffix(line, `"`)))
	if !ok {
		return "", false
	}
	args, ok = strings.CutPrefix(line, `"`+path+`"`)
	return args, ok
}

// split splits arguments as current C libraries do, or, with old, as those from before 2008.
func split(line string, old bool) (args []string) {
	for {
		line = strings.TrimLeft(line, " \t")
		if line == "" {
			return args
		}
		var b strings.Builder
		quoted, backslashes := false, 0
		i := 0
		for ; i < len(line); i++ {
			c := line[i]
			if c == '\\' {
				backslashes++
				continue
			}
			if c == '"' {
				b.WriteString(strings.Repeat(`\`, backslashes/2))
				switch {
				case backslashes%2 == 1:
					b.WriteByte(c)
				case quoted && i+1 < len(line) && line[i+1] == '"':
					b.WriteByte(c)
					i++
					quoted = !old
				default:
					quoted = !quoted
				}
				backslashes = 0
				continue
			}
			b.WriteString(strings.Repeat(`\`, backslashes))
			backslashes = 0
			if !quoted && (c == ' ' || c == '\t') {
				break
			}
			b.WriteByte(c)
		}
		b.WriteString(strings.Repeat(`\`, backslashes))
		args = append(args, b.String())
		line = line[i:]
	}
}

// checkArguments compares the arguments that a program gets from a batch file with args.
func checkArguments(t *testing.T, args []string) {
	s := shell{map[string]string{"CD": `C:\dir`, "USERNAME": "somebody & echo", "A": "1", "X^": "2"}}
	const path = `C:\50% & more\srv.cmd`
	for _, shim := range []bool{false, true} {
		line, err := commandLine("cmd.exe", path, shim, args)
		if err != nil {
			if !errors.Is(err, ErrArguments) {
				t.Errorf("shim %v: %v is not ErrArguments", shim, err)
			}
			continue
		}
		text, ok := s.run(t, line, path)
		if !ok {
			t.Fatalf("shim %v: not one command: %s", shim, line)
		}
		program, ok := s.unescape(text) // on the line of the batch file
		if !ok {
			t.Fatalf("shim %v: not one command in the batch file: %s", shim, text)
		}
		quote := strings.Contains(strings.Join(args, ""), `"`)
		for _, old := range []bool{false, true} {
			if old && quote && !shim {
				continue
			}
			if diff := cmp.Diff(append([]string{}, args...), append([]string{}, split(program, old)...)); diff != "" {
				t.Errorf("shim %v, old %v: %s\n%s", shim, old, line, diff)
			}
		}
		if !shim && len(args) > 0 {
			// "%~1" of the first argument.
			first, err := commandLine("cmd.exe", path, shim, args[:1])
			if err != nil {
				t.Fatal(err)
			}
			text, _ := s.run(t, first, path)
			if got, ok := s.unescape(strings.TrimPrefix(text, " ")); !ok || !strings.HasPrefix(got, `"`) || !strings.HasSuffix(got, `"`) {
				t.Errorf("as one argument: got unbalanced quotes: %s", text)
			}
		}
	}
}

var arguments = [][]string{
	nil,
	{""},
	{"-y", "mcp-remote", "https://h/mcp?a=1&b=2", "--header", "Authorization:Bearer x%y"},
	{"postgresql://u:p%40w@h/db?a=1&b=2"},
	{`x"y`, "p&echo INJECTED"},
	{`"&echo INJECTED&"`, "%USERNAME%", "%A%", "%USERNAME:~0,3%", "%A:1=&%", "%%", "%", "%X^%"},
	{`{"a": [1, "b c", "\\\"", "%A%", "^&"]}`},
	{`C:\dir\`, `\`, `\\`, `\"`, `a\\"b`, `"`, `""`, `"""`},
	{"^", "^^", "!A!", "(a)", "a|b", "a>b<c", "a,b;c=d", "`", "'", "*", "?", "~", "@", "#"},
	{" ", "\t", " a ", "ü€😀", "/c", "/?"},
}

func TestArguments(t *testing.T) {
	for _, args := range arguments {
		checkArguments(t, args)
	}
}

// FuzzArguments checks that a program gets the same arguments, and that the line has one command.
func FuzzArguments(f *testing.F) {
	for _, args := range arguments {
		f.Add(strings.Join(args, "\x01"))
	}
	f.Fuzz(func(t *testing.T, joined string) {
		if !utf8.ValidString(joined) {
			return // Windows has UTF-16
		}
		args := strings.Split(joined, "\x01")
		for _, arg := range args {
			if strings.ContainsFunc(arg, func(r rune) bool { return unicode.Is(unicode.Cs, r) }) {
				return
			}
		}
		checkArguments(t, args)
	})
}
