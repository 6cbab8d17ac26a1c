package interop

import (
	"bytes"
	"encoding/json"
	"errors"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// A pypiServer is a server from PyPI, started as its users start it.
type pypiServer struct {
	name string
	// modern is set if it supports the modern era.
	modern bool
	args   []string
	env    []string
	// script starts its console script instead of uvx, which would not use the environment that
	// servers.txt describes.
	script bool
	// check also runs mcpwire check on the server, which starts it more than a dozen times.
	check bool
	// tool is one of its tools. It is called with the arguments call; nil means that it is not
	// called, because it needs the Internet.
	tool string
	call []string
	// want is a part of the result.
	want string
}

// pypiServers are the servers of py/servers.txt. $DIR is a directory with an empty git repository,
// and $PAGE the URL of a page.
var pypiServers = []pypiServer{
	{name: "mcp-server-fetch", modern: true, args: []string{"--ignore-robots-txt", "--allow-private-ips"}, tool: "fetch", call: []string{"url=$PAGE"}, want: "a page of the test"},
	{name: "mcp-server-git", modern: true, args: []string{"--repository", "$DIR"}, tool: "git_status", call: []string{"repo_path=$DIR"}, want: "nothing to commit"},
	{name: "mcp-server-time", modern: true, check: true, tool: "get_current_time", call: []string{"timezone=Etc/UTC"}, want: `"timezone": "Etc/UTC"`},
	{name: "mcp-server-sqlite", script: true, args: []string{"--db-path", "$DIR/.git/test.db"}, tool: "read_query", call: []string{"query=SELECT 6*7 AS answer"}, want: "42"},
	{name: "mcp-text-editor", script: true, tool: "get_text_file_contents", call: []string{`files:=[{"file_path":"$DIR/.git/HEAD","ranges":[{"start":1}]}]`}, want: "refs/heads"},
	{name: "mcp-server-calculator", check: true, tool: "calculate", call: []string{"expression=6*7"}, want: "42"},
	{name: "mcp-shell-server", env: []string{"ALLOW_COMMANDS=cat"}, tool: "shell_execute", call: []string{`command:=["cat",".git/HEAD"]`, "directory=$DIR"}, want: "refs/heads"},
	{name: "excel-mcp-server", modern: true, args: []string{"stdio"}, tool: "create_workbook"},
	{name: "arxiv-mcp-server", args: []string{"--storage-path", "$DIR/.git/papers"}, tool: "list_papers"},
	{name: "wikipedia-mcp", modern: true, tool: "search_wikipedia"},
	{name: "duckduckgo-mcp-server", modern: true, tool: "search"},
	{name: "mcp-nixos", modern: true, tool: "nix"},
	{name: "awslabs.aws-documentation-mcp-server", modern: true, tool: "read_documentation"},
}

// TestPyPI runs the commands of mcpwire on servers from PyPI.
func TestPyPI(t *testing.T) {
	if os.Getenv("INTEROP_SERVER") != "" {
		t.Skip("INTEROP_SERVER is not mcpwire")
	}
	page := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/html")
		w.Write([]byte("<html><body><article><h1>Title</h1><p>a page of the test, with some words in it</p></article></body></html>"))
	}))
	t.Cleanup(page.Close)
	for _, s := range pypiServers {
		t.Run(s.name, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			git := exec.Command("git", "-c", "user.name=a", "-c", "user.email=a@example.com", "-C", dir, "-c", "init.defaultBranch=main", "init", "-q")
			if out, err := git.CombinedOutput(); err != nil {
				t.Fatalf("git init: %v\n%s", err, out)
			}
			s.visit(t, strings.NewReplacer("$DIR", dir, "$PAGE", page.URL))
		})
	}
}

// visit runs the commands on the server.
func (s *pypiServer) visit(t *testing.T, words *strings.Replacer) {
	command := s.command(t, words)
	home := t.TempDir()
	capture := filepath.Join(home, "tap.ndjson")
	tapped := append([]string{serverCommand[0], "tap", "-o", capture, "--"}, command...)

	direct := s.run(t, home, 0, append([]string{"list", "tools", "--json", "--"}, command...))
	var list struct {
		ResultType string `json:"resultType"`
		Tools      []struct{ Name string }
	}
	if err := json.Unmarshal(direct, &list); err != nil {
		t.Fatalf("decode list: %v in %.300s", err, direct)
	}
	if got := list.ResultType != ""; got != s.modern {
		t.Errorf("list: modern = %t, want %t", got, s.modern)
	}
	if !slices.ContainsFunc(list.Tools, func(tool struct{ Name string }) bool { return tool.Name == s.tool }) {
		t.Errorf("list: tools = %+v, want %s among them", list.Tools, s.tool)
	}
	if through := s.run(t, home, 0, append([]string{"list", "tools", "--json", "--"}, tapped...)); !bytes.Equal(through, direct) {
		t.Errorf("list through the tap = %.300s, want %.300s", through, direct)
	}
	s.run(t, home, 0, []string{"check", capture})
	if s.call != nil {
		args := []string{"call", "--timeout", "3m", s.tool} // a first call may install packages
		for _, arg := range s.call {
			args = append(args, words.Replace(arg))
		}
		if got := s.run(t, home, 0, append(append(args, "--"), command...)); !strings.Contains(string(got), s.want) {
			t.Errorf("call = %.500s, want %q in it", got, s.want)
		}
	}
	s.run(t, home, 0, append([]string{"doctor", "--quick", "--"}, command...))
	if s.check {
		s.run(t, home, 0, append([]string{"check", "--"}, command...))
	}
}

// command returns the command that starts the server as its users do, without the network.
func (s *pypiServer) command(t *testing.T, words *strings.Replacer) []string {
	t.Helper()
	venv, err := filepath.Abs(filepath.Join(pythonDir, "venv"))
	if err != nil {
		t.Fatal(err)
	}
	script := filepath.Join(venv, "tools-bin", s.name)
	if _, err := os.Stat(script); err != nil {
		missing(t, "python", "the servers of py/servers.txt are not installed: run tools/interop/py/install-servers")
	}
	tools := "UV_TOOL_DIR=" + filepath.Join(venv, "tools")
	command := append([]string{"env", tools, "UV_OFFLINE=1"}, s.env...)
	if s.script {
		command = append(command, script)
	} else {
		command = append(command, filepath.Join(venv, "bin", "uvx"), s.name)
	}
	for _, arg := range s.args {
		command = append(command, words.Replace(arg))
	}
	return command
}

// run runs mcpwire and returns its standard output.
func (s *pypiServer) run(t *testing.T, home string, status int, args []string) []byte {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), serverCommand[0], args...)
	cmd.Env = append(os.Environ(), "MCPWIRE_HOME="+home, "NO_COLOR=1")
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	err := cmd.Run()
	code := 0
	if exit := (*exec.ExitError)(nil); errors.As(err, &exit) {
		code = exit.ExitCode()
	} else if err != nil {
		t.Fatal(err)
	}
	if code != status {
		t.Errorf("mcpwire %s: exit status = %d, want %d\n%s\n%.3000s", strings.Join(args, " "), code, status, stdout.Bytes(), stderr.Bytes())
	}
	return stdout.Bytes()
}
