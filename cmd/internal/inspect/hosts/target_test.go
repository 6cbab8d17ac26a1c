package hosts_test

import (
	"errors"
	"io/fs"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"mcpwire/cmd/internal/inspect/hosts"
)

func TestResolve(t *testing.T) {
	e, root := machine(t, "linux", map[string]string{
		"home/.cursor/mcp.json":        `{"mcpServers": {"fs": {"command": "a"}, "same": {"command": "s", "args": []}, "plugin:x": {"command": "p"}, "cursor": {"command": "c"}}}`,
		"home/.kiro/settings/mcp.json": `{"mcpServers": {"fs": {"command": "b"}, "same": {"command": "s"}}}`,
		"home/.claude.json":            `{"mcpServers": {"twice": {"command": "u"}}, "projects": {"ROOT/src": {"mcpServers": {"twice": {"command": "l"}}}, "/other": {"mcpServers": {"fs": {"command": "o"}, "far": {"command": "f"}}}}}`,
		"home/.codex/config.toml":      "[mcp_servers\n",
		"src/my.json":                  `{"mcpServers": {"one": {"command": "1"}}}`,
		"src/map.jsonc":                `{/* root */ "two": {"command": "2"}, "other": 5, "a/b": {"url": "https://x.example"}}`,
		"src/a:b.toml":                 "[mcp_servers.'x:y']\ncommand = 'z'\nenv = { T = '${HOME}' }",
		"src/broken.json":              `{"mcpServers": {"one": `,
	}, nil)
	claude := filepath.Join(root, "home", ".claude.json")
	write(t, claude, strings.ReplaceAll(read(t, claude), "ROOT", filepath.ToSlash(root)))
	for _, tt := range []struct{ target, want, fails string }{
		{"cursor:fs", "a", ""},
		{"kiro:fs", "b", ""},
		{"same", "s", ""},
		{"plugin:x", "p", ""},
		{"cursor", "c", ""},
		{"far", "f", ""}, // only in another project
		{"my.json:one", "1", ""},
		{root + "/src/my.json:one", "1", ""},
		{"map.jsonc:two", "2", ""},
		{"map.jsonc:/two", "2", ""},
		{"map.jsonc:/a~1b", "https://x.example", ""},
		{"a:b.toml:x:y", "z", ""},
		{root + "/home/.kiro/settings/mcp.json:fs", "b", ""},
		{root + "/home/.claude.json:/mcpServers/twice", "u", ""},
		{"fs", "", `"fs" is in 2 places: cursor:fs, kiro:fs`},
		{"twice", "", `"twice" is in 2 places: ROOT/home/.claude.json:/mcpServers/twice, ROOT/home/.claude.json:/projects/`},
		{"claude-code:twice", "", `"claude-code:twice" is in 2 places: `},
		{"fz", "", `no server "fz" is configured: did you mean fs? (could not read ROOT/home/.codex/config.toml:1:`},
		{"cursor:sam", "", `no server "cursor:sam" is configured: did you mean cursor:same?`},
		{"my.json:on", "", `no server "my.json:on" is configured: did you mean my.json:one?`},
		{"map.jsonc:other", "", `no server "map.jsonc:other" is configured`},
		{"broken.json:one", "", "ROOT/src/broken.json:1:24: unexpected end of file"},
		{"gone.json:one", "", "ROOT/src/gone.json"},
		{"completely-different", "", `no server "completely-different" is configured`},
		{"", "", `no server "" is configured`},
		{":", "", `no server ":" is configured`},
		{"\x1b[31m", "", `no server "\x1b[31m" is configured`},
	} {
		s, err := hosts.Resolve(e, tt.target)
		got, problem := s.Command+s.URL, ""
		if err != nil {
			problem = filepath.ToSlash(strings.ReplaceAll(err.Error(), root, "ROOT"))
		}
		tt.fails = filepath.ToSlash(tt.fails)
		if got != tt.want || tt.fails == "" && problem != "" || !strings.Contains(problem, tt.fails) {
			t.Errorf("%s: got %q, %q; want %q, %q", tt.target, got, problem, tt.want, tt.fails)
		}
	}
	_, err := hosts.Resolve(e, "fs")
	var ambiguous *hosts.AmbiguousError
	if !errors.As(err, &ambiguous) || len(ambiguous.Choices) != 2 {
		t.Errorf("got %v, want two choices", err)
	}
	for _, target := range ambiguous.Targets() {
		if _, err := hosts.Resolve(e, target); err != nil {
			t.Errorf("the choice %s: %v", target, err)
		}
	}
	var missing *hosts.NotFoundError
	if _, err := hosts.Resolve(e, "nope-nope-nope"); !errors.As(err, &missing) || len(missing.Similar) > 0 {
		t.Errorf("got %v, want no suggestion", err)
	}
	if _, err := hosts.Resolve(e, "gone.json:one"); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("got %v, want fs.ErrNotExist", err)
	}
}

func TestExpand(t *testing.T) {
	vars := map[string]string{"A": "alpha", "EMPTY": "", "TOK": "t0k", "ORG": "o"}
	e, root := machine(t, "linux", map[string]string{
		"src/.env": "# c\nA=file\nexport B=\"two\\nlines\" # c\nC='raw $A'\nD = bare # c\nE=\"a\nb\"\n\nF=#x\nG=a#b\r\n",
		"src/.vscode/mcp.json": `{"servers": {
			"all": {"command": "${A}/bin", "args": ["${env:A}", "${NOPE:-d}", "${EMPTY:-e}", "${workspaceFolder}/x", "${workspaceFolderBasename}", "${userHome}", "${pathSeparator}", "$A", "${not a ref}", "$${A}", "{env:A}"],
				"env": {"A": "own ${A}", "X": "${EMPTY}"}, "cwd": "sub", "envFile": "${workspaceFolder}/.env"},
			"not": {"url": "https://${NOPE}/${input:tok}", "headers": {"X": "${config:a.b} ${command:c} ${NOPE2:x}"}},
			"badfile": {"command": "x", "envFile": "gone.env"}}}`,
		"home/.codex/config.toml":    "[mcp_servers.dex]\nurl = 'https://x.example/${A}'\nbearer_token_env_var = 'TOK'\nhttp_headers = {Y = '${A}'}\n[mcp_servers.dex.env_http_headers]\nX = 'ORG'",
		"home/.gemini/settings.json": `{"mcpServers": {"gem": {"command": "$A", "args": ["${A}-$NOPE_"]}}}`,
		"src/opencode.json":          `{"mcp": {"open": {"command": ["x", "{env:A}", "${A}", "{file:s}"]}}}`,
	}, vars)
	get := func(target string) (hosts.Server, error) {
		s, err := hosts.Resolve(e, target)
		if err != nil {
			t.Fatal(err)
		}
		return s.Expand(e)
	}
	work := filepath.Join(root, "src")
	s, err := get("all")
	if err != nil {
		t.Fatal(err)
	}
	want := []string{"alpha/bin", "alpha", "d", "e", work + "/x", "src", filepath.Join(root, "home"), "/", "$A", "${not a ref}", "$alpha", "{env:A}"}
	if diff := cmp.Diff(want, append([]string{s.Command}, s.Args...)); diff != "" {
		t.Errorf("command (-want +got):\n%s", diff)
	}
	wantEnv := map[string]string{"A": "own alpha", "X": "", "B": "two\nlines", "C": "raw $A", "D": "bare", "E": "a\nb", "F": "", "G": "a#b"}
	if diff := cmp.Diff(wantEnv, s.Env); diff != "" || s.Cwd != filepath.Join(work, "sub") {
		t.Errorf("env, %s (-want +got):\n%s", s.Cwd, diff)
	}
	s, err = get("dex")
	if diff := cmp.Diff(map[string]string{"Authorization": "Bearer t0k", "X": "o", "Y": "${A}"}, s.Headers); diff != "" || err != nil || s.URL != "https://x.example/${A}" {
		t.Errorf("codex: %v %s (-want +got):\n%s", err, s.URL, diff)
	}
	for _, tt := range []struct {
		target string
		want   []hosts.Unexpanded
	}{
		{"not", []hosts.Unexpanded{
			{"headers.X", "${config:a.b}", "only the host knows its settings and commands"},
			{"headers.X", "${command:c}", "only the host knows its settings and commands"},
			{"url", "${NOPE}", "the variable is not set"},
			{"url", "${input:tok}", "VS Code asks the user for this; set it in the entry, or pass --env"}}},
		{"gem", []hosts.Unexpanded{{"args[0]", "$NOPE_", "the variable is not set"}}},
		{"open", []hosts.Unexpanded{{"args[2]", "{file:s}", "reading files is not supported"}}},
	} {
		s, err := get(tt.target)
		var x *hosts.ExpandError
		if !errors.As(err, &x) {
			t.Errorf("%s: got %v", tt.target, err)
			continue
		}
		if diff := cmp.Diff(tt.want, x.Unexpanded); diff != "" {
			t.Errorf("%s (-want +got):\n%s", tt.target, diff)
		}
		if tt.target == "open" && (s.Args[0] != "alpha" || s.Args[1] != "${A}") {
			t.Errorf("opencode: got %q", s.Args)
		}
	}
	if _, err := get("badfile"); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("got %v, want fs.ErrNotExist", err)
	}
}

// TestExpandBounded shows that a few bytes in a file do not expand to gigabytes.
func TestExpandBounded(t *testing.T) {
	e, _ := machine(t, "linux", nil, map[string]string{"BIG": strings.Repeat("x", 100_000)})
	s := hosts.Server{Name: "big", Command: strings.Repeat("${BIG}", 10_000)}
	if _, err := s.Expand(e); err == nil || !strings.Contains(err.Error(), "the expanded value is too long") {
		t.Errorf("got %.200v", err)
	}
}

func TestReadEnvFile(t *testing.T) {
	dir := t.TempDir()
	for _, tt := range []struct{ text, want string }{
		{"no equals\n", "f:1:1: want NAME=VALUE"},
		{"A=1\n\nB='open\nC=2\n", "f:3:3: the quote is not closed"},
		{"A B=1", "f:1:1: want NAME=VALUE"},
		{strings.Repeat("A", 2<<20), "f: the file is larger than 1 MiB"},
	} {
		path := filepath.Join(dir, "f")
		write(t, path, tt.text)
		_, err := hosts.ReadEnvFile(path)
		if err == nil || strings.ReplaceAll(err.Error(), path, "f") != tt.want {
			t.Errorf("%.20q: got %v, want %s", tt.text, err, tt.want)
		}
	}
}

func TestRedacted(t *testing.T) {
	s := hosts.Server{Env: map[string]string{"A": "s3cret", "B": "${env:TOK}", "C": "${TOK:-s3cret}", "D": "$TOK", "E": ""},
		Headers: map[string]string{"Authorization": "Bearer s3cret", "X": "Bearer ${TOK}"}}
	for _, tt := range []struct{ url, want string }{
		{"https://u:s3cret@h.example:8/p?a=s3cret&b=${TOK}&s3cret#s3cret", "https://~hidden~@h.example:8/p?a=~hidden~&b=${TOK}&~hidden~#~hidden~"},
		{"https://h.example/mcp/s3cret0000000000000000000/sse", "https://h.example/mcp/~hidden~/sse"},
		{"https://h.example/%zz", "~hidden~"},
		{"mailto:s3cret", "~hidden~"},
		{"", ""},
	} {
		s.URL = tt.url
		r := s.Redacted()
		if r.URL != tt.want {
			t.Errorf("%s: got %s, want %s", tt.url, r.URL, tt.want)
		}
		if diff := cmp.Diff(map[string]string{"A": hosts.Placeholder, "B": "${env:TOK}", "C": hosts.Placeholder, "D": "$TOK", "E": ""}, r.Env); diff != "" {
			t.Errorf("env (-want +got):\n%s", diff)
		}
		if r.Headers["Authorization"] != hosts.Placeholder || r.Headers["X"] != "Bearer ${TOK}" || s.Env["A"] != "s3cret" {
			t.Errorf("got %v", r.Headers)
		}
	}
}
