package cli

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"mcpwire/cmd/internal/cli/kit"
)

// metacharacters are texts that a shell would act on if they were not quoted.
var metacharacters = []string{
	"$(touch$IFS$HOME/PWNED)", "`touch $HOME/PWNED`", "a;touch$IFS$HOME/PWNED;", "a&touch$IFS$HOME/PWNED&", "a|tee$IFS$HOME/PWNED", "a'b;touch $HOME/PWNED;'",
	`a"b;touch $HOME/PWNED;"`, `a\';touch $HOME/PWNED`, "a>$HOME/PWNED", "a<b", "*", "?x", "[a]", "{a,b}", "~root", "!!", "#x", "$HOME", "a b", "=ls", "x=~", "x=$(id)", "", "-n", "(a)", "ä", "%s",
}

// secretVariable finds the variables in place of secrets.
var secretVariable = regexp.MustCompile(`"\$([A-Z0-9_]+)"`)

// runShell runs a line with a shell in which mcpwire and curl print their arguments, one on each
// line, and returns those.
func runShell(t *testing.T, line string) []string {
	t.Helper()
	if runtime.GOOS == "windows" {
		t.Skip("there is no POSIX shell")
	}
	dir := t.TempDir()
	for _, name := range []string{"mcpwire", "curl"} {
		script := "#!/bin/sh\nprintf '%s\\n' " + name + " \"$@\"\n"
		if err := os.WriteFile(filepath.Join(dir, name), []byte(script), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	home := filepath.Join(dir, "home")
	if err := os.Mkdir(home, 0o700); err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), "/bin/sh", "-c", line)
	cmd.Dir = home
	cmd.Env = []string{"PATH=" + dir + ":/usr/bin:/bin", "HOME=" + home}
	for _, v := range secretVariable.FindAllStringSubmatch(line, -1) {
		cmd.Env = append(cmd.Env, v[1]+"=${"+v[1]+"}") // as written in nextArgv
	}
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Errorf("sh -c %s: %v: %s", line, err, out)
	}
	if left, err := os.ReadDir(home); err != nil || len(left) > 0 {
		t.Errorf("sh -c %s left files behind: %v %v", line, left, err)
	}
	return strings.Split(strings.TrimSuffix(string(out), "\n"), "\n")
}

func TestShellLine(t *testing.T) {
	argv := append([]string{"mcpwire", "check", "--"}, metacharacters...)
	if diff := cmp.Diff(argv, runShell(t, kit.ShellLine(argv...))); diff != "" {
		t.Errorf("what the shell ran differs (-want +got):\n%s", diff)
	}
	for _, s := range metacharacters {
		if got := runShell(t, kit.ShellLine("mcpwire", s)); !cmp.Equal(got, []string{"mcpwire", s}) {
			t.Errorf("%q became %q", s, got)
		}
	}
}

func TestShellLinePlain(t *testing.T) {
	for _, tt := range []struct {
		argv []string
		want string
	}{
		{[]string{"mcpwire", "doctor", "--", "node", "a/b.js", "--port=8080"}, "mcpwire doctor -- node a/b.js --port=8080"},
		{[]string{"A=b", "C=d"}, "'A=b' C=d"},
		{[]string{"a", "b\nc"}, `a 'b\nc'`},
		{[]string{"a", "\x1b[31m"}, `a '\x1b[31m'`},
	} {
		if got := kit.ShellLine(tt.argv...); got != tt.want {
			t.Errorf("%q: %s, want %s", tt.argv, got, tt.want)
		}
	}
}

// TestDoctorNextIsQuoted shows that the next step in doctor's report is quoted, so that a shell
// does not run what a server put into its address.
func TestDoctorNextIsQuoted(t *testing.T) {
	for _, s := range metacharacters {
		srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			w.Header()["Location"] = []string{"http://" + r.Host + "/" + s + "?q=" + s}
			w.WriteHeader(http.StatusTemporaryRedirect)
		}))
		_, out := runDoctorOn(t, srv, "--json", "URL/mcp")
		srv.Close()
		var report struct {
			Next     string
			NextArgv []string
		}
		if err := json.Unmarshal([]byte(out), &report); err != nil {
			t.Fatalf("%v in:\n%s", err, out)
		}
		if report.Next == "" {
			continue // the URL cannot be parsed
		}
		got := runShell(t, strings.ReplaceAll(report.Next, "URL", srv.URL))
		want := report.NextArgv
		for i := range want {
			want[i] = strings.ReplaceAll(want[i], "URL", srv.URL)
		}
		if diff := cmp.Diff(want, got); diff != "" || len(want) != 3 || want[0] == "mcpwire" && want[1] != "doctor" {
			t.Errorf("next is %s: what the shell ran differs (-want +got):\n%s", report.Next, diff)
		}
	}
}

func TestSecretNames(t *testing.T) {
	const secret, other = "sk-proj-abcdefghijklmnopqrstuvwxyz0123456789", "ghp_abcdefghijklmnopqrstuvwxyz0123456789"
	for _, tt := range []struct {
		argv []string
		want string
		text []string
	}{
		{[]string{"node", "--api-key", secret}, `node --api-key "$API_KEY"`, []string{"node", "--api-key", "${API_KEY}"}},
		{[]string{"node", "--api-key=" + secret}, `node --api-key="$API_KEY"`, nil},
		{[]string{"env", "MY_TOKEN=" + secret, "node", secret}, `env MY_TOKEN="$MY_TOKEN" node "$MY_TOKEN"`, nil},
		{[]string{"x", "--path=" + secret}, `x --path="$SECRET_PATH"`, nil},
		{[]string{"env", "TOKEN=" + secret, "TOKEN=" + other}, `env TOKEN="$TOKEN" TOKEN="$TOKEN_2"`, nil},
	} {
		n := kit.NewSecretNames()
		args := n.Args(tt.argv...)
		if got := kit.ShellText(args); got != tt.want {
			t.Errorf("%q: %s, want %s", tt.argv, got, tt.want)
		}
		for i, want := range tt.text {
			if got := args[i].Text(); got != want {
				t.Errorf("%q: argument %d is %s, want %s", tt.argv, i, got, want)
			}
		}
	}
	n := kit.NewSecretNames()
	if got, want := kit.ShellText([]kit.Arg{n.URL("https://u:p@h.example/mcp?api_key=" + secret + "&x=1")}), `https://h.example/mcp'?api_key='"$API_KEY"'&x=1'`; !strings.HasSuffix(got, `"$API_KEY"'&x=1'`) || strings.Contains(got, "u:p") {
		t.Errorf("URL: %s, want %s", got, want)
	}
}
