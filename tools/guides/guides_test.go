// Package guides runs the guides in doc/guide: it writes their files, compiles their programs, runs
// their commands, and compares their output with the guide.
//
// A block of code is one of these:
//
//   - a file: the line before it is <!-- file NAME -->, in the folder where the guide begins;
//   - a program of Go, with a package clause: it is compiled. With module=bench, it is in the module
//     of that folder;
//   - other Go code: an example or a file of the guide must contain these lines;
//   - sh: commands. All of a guide are one bash script, so folders and variables last. A command
//     that fails is an error, but for "sh exit=N", where exactly one must fail with that status.
//     With "sh background", the block is one command, which runs while the rest does. The rest waits
//     until it prints "listening";
//   - text after sh: the standard output and standard error of the commands, without the lines in
//     which the go command reports downloads, because these depend on the module cache. "…" is any
//     text, also several lines.
//
// Blocks of other languages are configurations of other programs, and JSON, which is parsed.
package guides

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"mcpwire/internal/net/loopback"
)

// guideTimeout limits one guide. A guide takes seconds; a busy machine may take a minute.
const guideTimeout = 5 * time.Minute

// guidePort is the port in the guides. The test replaces it with a free one.
const guidePort = "8080"

// A block is a fenced block of code.
type block struct {
	line     int
	language string
	// attributes are the words after the language, as name=value or name.
	attributes map[string]string
	// file is the name in the comment before the block, or empty.
	file string
	text string
}

var fileComment = regexp.MustCompile(`^<!-- file (\S+) -->$`)

// parseGuide returns the blocks of a guide.
func parseGuide(text string) ([]block, error) {
	var blocks []block
	var open *block
	file := ""
	n := 0
	for line := range strings.Lines(text) {
		n++
		bare := strings.TrimSuffix(line, "\n")
		switch {
		case open != nil && bare == "```":
			blocks = append(blocks, *open)
			open = nil
		case open != nil:
			open.text += line
		case strings.HasPrefix(bare, "```"):
			words := strings.Fields(strings.TrimPrefix(bare, "```"))
			if len(words) == 0 {
				return nil, fmt.Errorf("line %d: a block without a language", n)
			}
			open = &block{line: n, language: words[0], attributes: map[string]string{}, file: file}
			for _, word := range words[1:] {
				name, value, _ := strings.Cut(word, "=")
				open.attributes[name] = value
			}
			file = ""
		default:
			if m := fileComment.FindStringSubmatch(bare); m != nil {
				file = m[1]
			} else if bare != "" {
				file = ""
			}
		}
	}
	if open != nil {
		return nil, fmt.Errorf("line %d: a block without an end", open.line)
	}
	return blocks, nil
}

// script returns the bash script of a guide. Block i writes what it prints to i.out, and the status
// and the text of each command that fails to i.failed.
func script(blocks []block) string {
	var b strings.Builder
	b.WriteString("exec 3>&1\nset -E\n")
	for i, bl := range blocks {
		switch {
		case bl.file != "":
			fmt.Fprintf(&b, "mkdir -p \"$(dirname \"$GUIDE/%s\")\"\ncat >\"$GUIDE/%[1]s\" <<'END OF FILE'\n%sEND OF FILE\n", bl.file, bl.text)
		case bl.language != "sh":
		default:
			_, background := bl.attributes["background"]
			fmt.Fprintf(&b, "trap 'echo $? $BASH_COMMAND >>\"$RESULTS/%d.failed\"' ERR\n", i)
			if background {
				// With exec, the job is the program, and kill %1 signals it.
				fmt.Fprintf(&b, "exec %s >\"$RESULTS/%d.out\" 2>&1 &\n", strings.TrimSpace(bl.text), i)
				fmt.Fprintf(&b, "while ! grep -q listening \"$RESULTS/%d.out\" 2>/dev/null && kill -0 $! 2>/dev/null; do sleep 0.1; done\n", i)
			} else {
				fmt.Fprintf(&b, "exec >\"$RESULTS/%d.out\" 2>&1\n%sexec >&3 2>&3\n", i, bl.text)
			}
		}
	}
	b.WriteString("trap '' TERM\nkill 0\nwait\n") // end the background processes
	return b.String()
}

// matches reports whether got is want, in which "…" stands for any text.
func matches(want, got string) bool {
	parts := strings.Split(strings.TrimSpace(want), "…")
	for i, part := range parts {
		parts[i] = regexp.QuoteMeta(part)
	}
	ok, err := regexp.MatchString("(?s)^"+strings.Join(parts, ".*")+"$", strings.TrimSpace(got))
	return ok && err == nil
}

// withoutDownloads removes the lines in which the go command reports what it downloads.
func withoutDownloads(out string) string {
	var b strings.Builder
	for line := range strings.Lines(out) {
		if !strings.HasPrefix(line, "go: downloading ") {
			b.WriteString(line)
		}
	}
	return b.String()
}

// trimmed removes the indentation and empty lines of a text.
func trimmed(text string) string {
	var b strings.Builder
	for line := range strings.Lines(text) {
		if line = strings.TrimSpace(line); line != "" {
			b.WriteString(line + "\n")
		}
	}
	return b.String()
}

// A checker checks the guides.
type checker struct {
	// root is the module's folder.
	root string
	// bin has the program mcpwire.
	bin string
	// examples are the trimmed texts of the examples.
	examples []string
}

func newChecker(t *testing.T) *checker {
	root, err := filepath.Abs("../..")
	if err != nil {
		t.Fatal(err)
	}
	c := &checker{root: root, bin: t.TempDir()}
	c.goTool(t, root, "build", "-o", c.bin, "./cmd/mcpwire")
	err = filepath.WalkDir(filepath.Join(root, "examples"), func(path string, _ fs.DirEntry, err error) error {
		if err != nil || filepath.Ext(path) != ".go" {
			return err
		}
		text, err := os.ReadFile(path)
		c.examples = append(c.examples, trimmed(string(text)))
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func (c *checker) goTool(t *testing.T, dir string, args ...string) {
	cmd := exec.CommandContext(t.Context(), "go", args...)
	cmd.Dir = dir
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Errorf("go %s: %v\n%s", strings.Join(args, " "), err, out)
	}
}

// compile compiles the programs, and looks for the other Go code in the examples and in the files
// of the guide.
func (c *checker) compile(t *testing.T, blocks []block) {
	known := slices.Clip(c.examples) // guides run at the same time
	for _, bl := range blocks {
		if bl.file != "" {
			known = append(known, trimmed(bl.text))
		}
	}
	for _, bl := range blocks {
		switch {
		case bl.file != "":
		case bl.language == "json":
			if err := json.Unmarshal([]byte(bl.text), new(any)); err != nil {
				t.Errorf("line %d: %v", bl.line, err)
			}
		case bl.language != "go":
		case strings.HasPrefix(bl.text, "package "):
			source := filepath.Join(t.TempDir(), "main.go")
			if err := os.WriteFile(source, []byte(bl.text), 0o666); err != nil {
				t.Fatal(err)
			}
			c.goTool(t, filepath.Join(c.root, bl.attributes["module"]), "vet", source)
		default:
			found := false
			for _, text := range known {
				found = found || strings.Contains(text, trimmed(bl.text))
			}
			if !found {
				t.Errorf("line %d: neither an example nor a file of this guide has these lines", bl.line)
			}
		}
	}
}

// run runs the commands of a guide.
func (c *checker) run(t *testing.T, blocks []block) {
	dir, results := t.TempDir(), t.TempDir()
	free, err := loopback.FreeAddresses(1)
	if err != nil {
		t.Fatal(err)
	}
	_, port, err := net.SplitHostPort(free[0])
	if err != nil {
		t.Fatal(err)
	}
	replace := strings.NewReplacer(":"+guidePort, ":"+port, "/path/to/mcpwire", c.root)
	for i := range blocks {
		blocks[i].text = replace.Replace(blocks[i].text)
	}

	ctx, cancel := context.WithTimeout(t.Context(), guideTimeout)
	defer cancel()
	file := filepath.Join(results, "script")
	if err := os.WriteFile(file, []byte(script(blocks)), 0o666); err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(ctx, "bash", file)
	cmd.Dir = dir
	cmd.Env = append(environment(), "GUIDE="+dir, "RESULTS="+results, "HOME="+filepath.Join(dir, "home"),
		"PATH="+c.bin+string(os.PathListSeparator)+os.Getenv("PATH"), "NO_COLOR=1", "LC_ALL=C.UTF-8")
	var log bytes.Buffer
	cmd.Stdout, cmd.Stderr = &log, &log
	runGroup(cmd)
	if err := cmd.Run(); err != nil && !errors.Is(err, exec.ErrWaitDelay) {
		t.Errorf("the script ends with %v", err)
	}
	if log.Len() > 0 {
		t.Errorf("the script prints %q", log.Bytes())
	}

	for i, bl := range blocks {
		if bl.language != "sh" || bl.file != "" {
			continue
		}
		text, err := os.ReadFile(filepath.Join(results, fmt.Sprintf("%d.out", i)))
		if err != nil {
			t.Errorf("line %d: not run: %v", bl.line, err)
		}
		out := withoutDownloads(string(text))
		t.Logf("line %d prints:\n%s", bl.line, out)
		failed, err := os.ReadFile(filepath.Join(results, fmt.Sprintf("%d.failed", i)))
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			t.Fatal(err)
		}
		_, background := bl.attributes["background"]
		status, wantFailure := bl.attributes["exit"]
		switch got, _, _ := strings.Cut(string(failed), " "); {
		case background: // it is killed at the end
		case wantFailure && (got != status || strings.Count(string(failed), "\n") != 1):
			t.Errorf("line %d: failed %q, want one command with status %s\n%s", bl.line, failed, status, out)
		case !wantFailure && len(failed) > 0:
			t.Errorf("line %d: failed: %s\n%s", bl.line, failed, out)
		}
		if i+1 < len(blocks) && blocks[i+1].language == "text" && !matches(blocks[i+1].text, out) {
			t.Errorf("line %d: the output differs (-guide +output):\n%s", blocks[i+1].line, cmp.Diff(blocks[i+1].text, out))
		}
	}
}

// environment returns the variables of this process except those of mcpwire, with the caches of the
// go command, because HOME is another folder.
func environment() []string {
	var env []string
	for _, entry := range os.Environ() {
		if !strings.HasPrefix(entry, "MCP") && !strings.HasPrefix(entry, "XDG_") {
			env = append(env, entry)
		}
	}
	for _, name := range []string{"GOMODCACHE", "GOCACHE"} {
		if out, err := exec.Command("go", "env", name).Output(); err == nil {
			env = append(env, name+"="+strings.TrimSpace(string(out)))
		}
	}
	return append(env, "GOFLAGS=-mod=mod", "GOWORK=off")
}

// TestGuides runs each guide.
func TestGuides(t *testing.T) {
	if testing.Short() {
		t.Skip("builds programs")
	}
	if runtime.GOOS == "windows" {
		t.Skip("the guides use a Unix shell")
	}
	for _, name := range []string{"bash", "python3", "curl"} {
		if _, err := exec.LookPath(name); err != nil {
			t.Skipf("the guides use %s", name)
		}
	}
	c := newChecker(t)
	files, err := filepath.Glob(filepath.Join(c.root, "doc/guide/*.md"))
	if err != nil || len(files) == 0 {
		t.Fatalf("no guides: %v", err)
	}
	for _, file := range files {
		t.Run(strings.TrimSuffix(filepath.Base(file), ".md"), func(t *testing.T) {
			t.Parallel()
			text, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			blocks, err := parseGuide(string(text))
			if err != nil {
				t.Fatal(err)
			}
			c.compile(t, blocks)
			c.run(t, blocks)
		})
	}
}

// TestMatches tests matches.
func TestMatches(t *testing.T) {
	for _, tt := range []struct {
		want, got string
		ok        bool
	}{
		{"a\n", "a\n\n", true},
		{"a … c", "a b c", true},
		{"a\n…\nd", "a\nb\nc\nd", true},
		{"a", "a b", false},
		{"a.c", "abc", false},
		{"a … c", "a b d", false},
	} {
		if got := matches(tt.want, tt.got); got != tt.ok {
			t.Errorf("matches(%q, %q): got %v", tt.want, tt.got, got)
		}
	}
}

func TestWithoutDownloads(t *testing.T) {
	for _, tt := range []struct{ out, want string }{
		{"ok  \texample.com/clock\t0.1s\n", "ok  \texample.com/clock\t0.1s\n"},
		{"go: downloading golang.org/x/sys v0.1.0\nok\n", "ok\n"},
		{"a\ngo: downloading x v1.0.0\nb\ngo: downloading y v1.0.0", "a\nb\n"},
		{"go: finding module for package x\n", "go: finding module for package x\n"},
		{"", ""},
	} {
		if got := withoutDownloads(tt.out); got != tt.want {
			t.Errorf("withoutDownloads(%q): got %q, want %q", tt.out, got, tt.want)
		}
	}
}

func TestParseGuide(t *testing.T) {
	const guide = "# A\n\n<!-- file a/main.go -->\n```go\npackage main\n```\n\n```sh exit=6\nfalse\n```\n```text\n…\n```\n"
	got, err := parseGuide(guide)
	want := []block{
		{line: 4, language: "go", attributes: map[string]string{}, file: "a/main.go", text: "package main\n"},
		{line: 8, language: "sh", attributes: map[string]string{"exit": "6"}, text: "false\n"},
		{line: 11, language: "text", attributes: map[string]string{}, text: "…\n"},
	}
	if diff := cmp.Diff(want, got, cmp.AllowUnexported(block{})); diff != "" || err != nil {
		t.Errorf("%v, blocks (-want +got):\n%s", err, diff)
	}
	for _, bad := range []string{"```\nx\n```\n", "```sh\nx\n"} {
		if _, err := parseGuide(bad); err == nil {
			t.Errorf("%q was accepted", bad)
		}
	}
}
