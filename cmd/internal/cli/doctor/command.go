package doctor

import (
	"bufio"
	"errors"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"

	"mcpwire/cmd/internal/cli/kit"
	"mcpwire/cmd/internal/exit"
	"mcpwire/cmd/internal/text/safe"
	"mcpwire/cmd/internal/text/spelling"
	"mcpwire/internal/proc/batchfile"
)

// installers maps well-known programs to hints for installing them.
var installers = map[string]string{
	"node": "install Node.js", "npx": "install Node.js, which npx is part of", "npm": "install Node.js, which npm is part of",
	"uv": "install uv", "uvx": "install uv, which uvx is part of", "python": "install Python, or use python3", "python3": "install Python",
	"docker": "install Docker, and start it", "deno": "install Deno", "bun": "install Bun", "bunx": "install Bun, which bunx is part of", "go": "install Go", "java": "install a Java runtime",
}

// command examines the command to start and reports whether starting it makes sense.
func (doc *doctor) command() bool {
	s := doc.report.section("Command")
	t := &doc.d.Target
	dir := t.Dir
	if dir == "" {
		dir, _ = os.Getwd()
	}
	s.note("%s, in %s", doc.report.Target, safe.Line(dir))
	path, ok := doc.locate(s, t.Command[0], dir)
	if ok {
		ok = doc.executable(s, path)
	}
	if ok {
		doc.arguments(s, t.Command, dir)
	}
	doc.variables(s, t.Env)
	if !ok {
		doc.report.worse(exit.Unreachable)
		doc.report.nextOnce("after fixing that", doc.mcpwire("doctor")...)
	}
	return ok
}

// locate returns the path of the program as the system would find it.
func (doc *doctor) locate(s *doctorSection, name, dir string) (string, bool) {
	if strings.ContainsAny(name, `/\`) && (runtime.GOOS == "windows" || strings.Contains(name, "/")) {
		path := name
		if !filepath.IsAbs(path) {
			path = filepath.Join(dir, name)
			s.odd("%s is relative to the host's working folder, which often differs from yours", safe.Line(name)).hint("configure the full path: %s", safe.Line(path))
		}
		info, err := os.Stat(path)
		switch {
		case err != nil:
			s.bad("%s does not exist", safe.Line(path)).hint("%s", similarFile(path))
			return "", false
		case info.IsDir():
			s.bad("%s is a folder, not a program", safe.Line(path))
			return "", false
		}
		return path, true
	}
	path, err := exec.LookPath(name)
	if errors.Is(err, exec.ErrDot) {
		if abs, err := filepath.Abs(path); err == nil {
			path = abs
		}
		s.bad("%s is only found relative to the current folder: hosts run in another folder and do not find it", safe.Line(name)).hint("configure the full path: %s", safe.Line(path))
		return "", false
	}
	if err == nil {
		if abs, err := filepath.Abs(path); err == nil {
			path = abs
		}
		s.good("%s is %s", safe.Line(name), safe.Line(path))
		if runtime.GOOS == "windows" && batchfile.Is(path) {
			s.odd("%s is a batch file: some hosts only start .exe files", safe.Line(path)).hint(`use "cmd" as the command, with the arguments /c %s …`, safe.Line(name))
		}
		if !inEveryPath(path) {
			s.odd("hosts that are started from a desktop often have a shorter PATH, without %s", safe.Line(filepath.Dir(path))).hint("configure the full path: %s", safe.Line(path))
		}
		return path, true
	}
	folders := filepath.SplitList(os.Getenv("PATH"))
	l := s.bad("%s is not found in PATH", safe.Line(name))
	for _, f := range folders[:min(len(folders), 20)] {
		l.detail(safe.Line(f))
	}
	hint := "install it, or configure its full path"
	if how, ok := installers[strings.TrimSuffix(strings.ToLower(name), ".cmd")]; ok {
		hint = how + ", or configure its full path"
	}
	if similar := similarPrograms(name, folders); len(similar) > 0 {
		hint = "did you mean " + strings.Join(similar, " or ") + "? Otherwise " + hint
	}
	if strings.Contains(name, " ") {
		hint = "no shell splits the command line: give the program and its arguments separately"
	} else if _, err := os.Stat(filepath.Join(dir, name)); err == nil {
		hint = "it is in " + safe.Line(dir) + ", which is not in PATH: configure the full path " + safe.Line(filepath.Join(dir, name))
	}
	l.hint("%s", hint)
	return "", false
}

// inEveryPath reports whether a program is in a folder that every process has in PATH.
func inEveryPath(path string) bool {
	if runtime.GOOS == "windows" {
		return true
	}
	switch filepath.Dir(path) {
	case "/bin", "/usr/bin", "/sbin", "/usr/sbin", "/usr/local/bin":
		return true
	}
	return false
}

const maxEntries = 10_000 // limits the folder entries that are compared

// similarPrograms returns up to three similar names in the folders.
func similarPrograms(name string, folders []string) []string {
	var names []string
	for _, f := range folders {
		dir, err := os.Open(f)
		if err != nil {
			continue
		}
		list, _ := dir.Readdirnames(maxEntries)
		dir.Close()
		names = append(names, list...)
		if len(names) > maxEntries {
			break
		}
	}
	slices.Sort(names)
	var similar []string
	for _, n := range slices.Compact(names) {
		if n != name && len(similar) < 3 && spelling.Distance(strings.ToLower(n), strings.ToLower(name)) <= 1+len(name)/6 && len(name) > 2 {
			similar = append(similar, safe.Line(n))
		}
	}
	return similar
}

// similarFile returns a hint about a missing file.
func similarFile(path string) string {
	dir := filepath.Dir(path)
	entries, err := os.ReadDir(dir)
	if err != nil {
		return "the folder " + safe.Line(dir) + " does not exist either"
	}
	for _, e := range entries[:min(len(entries), maxEntries)] {
		if spelling.Distance(e.Name(), filepath.Base(path)) <= 2 {
			return "did you mean " + safe.Line(filepath.Join(dir, e.Name())) + "?"
		}
	}
	return "check that it was built, and that the folder is right"
}

// executable reports whether a file can be run. The system's own message is often misleading.
func (doc *doctor) executable(s *doctorSection, path string) bool {
	info, err := os.Stat(path)
	if err != nil || runtime.GOOS == "windows" {
		return err == nil
	}
	if info.Mode()&0o111 == 0 {
		s.bad("%s is not executable", safe.Line(path)).hint("%s, or configure the interpreter as the command and the file as its argument", kit.ShellLine("chmod", "+x", path))
		return false
	}
	interpreter, arg := shebang(path)
	if interpreter == "" {
		return true
	}
	if strings.HasSuffix(interpreter, "\r") || strings.HasSuffix(arg, "\r") {
		s.bad("the first line of %s ends in CR LF, so its interpreter is not found", safe.Line(path)).hint("save it with LF line ends")
		return false
	}
	if _, err := os.Stat(interpreter); errors.Is(err, fs.ErrNotExist) {
		s.bad("the interpreter of %s does not exist: %s", safe.Line(path), safe.Line(interpreter)).hint("install it, or fix the first line of the file")
		return false
	}
	if filepath.Base(interpreter) == "env" && arg != "" && !strings.HasPrefix(arg, "-") {
		if _, err := exec.LookPath(arg); err != nil {
			hint := "install it"
			if how, ok := installers[arg]; ok {
				hint = how
			}
			s.bad("%s needs %s, which is not found in PATH", safe.Line(path), safe.Line(arg)).hint("%s", hint)
			return false
		}
	}
	return true
}

// shebang returns the interpreter and its argument from the first line of a script.
func shebang(path string) (interpreter, arg string) {
	f, err := os.Open(path)
	if err != nil {
		return "", ""
	}
	defer f.Close()
	line, err := bufio.NewReaderSize(f, 512).ReadSlice('\n')
	if err != nil || !strings.HasPrefix(string(line), "#!") {
		return "", ""
	}
	interpreter, arg, _ = strings.Cut(strings.Trim(strings.TrimSuffix(string(line[2:]), "\n"), " \t"), " ")
	return interpreter, strings.TrimLeft(arg, " ")
}

// arguments reports a script that an interpreter will not find.
func (doc *doctor) arguments(s *doctorSection, command []string, dir string) {
	if len(command) < 2 || strings.HasPrefix(command[1], "-") {
		return
	}
	switch strings.ToLower(filepath.Ext(command[1])) {
	case ".js", ".mjs", ".cjs", ".ts", ".py", ".rb", ".sh", ".jar", ".php":
	default:
		return
	}
	path := command[1]
	if !filepath.IsAbs(path) {
		path = filepath.Join(dir, path)
	}
	if _, err := os.Stat(path); err != nil {
		s.bad("%s does not exist", safe.Line(path)).hint("%s", similarFile(path))
	} else if !filepath.IsAbs(command[1]) {
		s.odd("%s is relative to the host's working folder, which often differs from yours", safe.Line(command[1])).hint("configure the full path: %s", safe.Line(path))
	}
}

// variables reports environment variables that are empty or still contain a placeholder.
func (doc *doctor) variables(s *doctorSection, env []string) {
	for _, v := range env {
		name, value, _ := strings.Cut(v, "=")
		switch {
		case value == "":
			s.odd("the environment variable %s is empty", safe.Line(name)).hint("set it, if the server requires it")
		case strings.Contains(value, "${") || strings.HasPrefix(value, "$") && len(value) > 1 && strings.ToUpper(value) == value:
			s.odd("the environment variable %s contains a reference that was not replaced", safe.Line(name)).hint("not all hosts replace references: write the value, or set it with --env")
		case strings.HasPrefix(value, "<") && strings.HasSuffix(value, ">"), strings.HasPrefix(strings.ToUpper(value), "YOUR_"):
			s.odd("the environment variable %s still has the placeholder of the instructions", safe.Line(name)).hint("write your own value")
		}
	}
}
