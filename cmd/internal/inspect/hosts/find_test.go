package hosts_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"mcpwire/cmd/internal/inspect/hosts"
)

// userFiles are the files of the user that hosts have on one system, below home/.
func userFiles(goos string) map[string]string {
	config, zed := ".config", ".config/zed/settings.json"
	goose := ".config/goose/config.yaml"
	switch goos {
	case "darwin":
		config = "Library/Application Support"
	case "windows":
		config, zed = "AppData/Roaming", "AppData/Roaming/Zed/settings.json"
		goose = "AppData/Roaming/Block/goose/config/config.yaml"
	}
	std := func(host string) string {
		return `{"mcpServers": {"` + host + `": {"command": "` + host + `-server", "args": ["-v"], "env": {"K": "v"}}}}`
	}
	storage := "/globalStorage/"
	files := map[string]string{
		config + "/Claude/claude_desktop_config.json": std("claude-desktop"),
		".claude.json": `{"numStartups": 3, "mcpServers": {"mine": {"type": "http", "url": "https://a.example/mcp", "headers": {"X": "y"}}},
			"projects": {"/p": {"mcpServers": {"local": {"type": "stdio", "command": "l", "env": {}}}}, "/q": {"allowedTools": []}}}`,
		".cursor/mcp.json":                             std("cursor"),
		config + "/Code/User/mcp.json":                 "{\n // inputs\n \"inputs\": [{\"id\": \"k\"}], \"servers\": {\"code\": {\"type\": \"stdio\", \"command\": \"c\", \"envFile\": \"${workspaceFolder}/.env\",},},}",
		config + "/Code/User/settings.json":            `{"editor.tabSize": 2, "mcp": {"servers": {"old": {"command": "o"}}}}`,
		config + "/Code/User/profiles/ab12/mcp.json":   `{"servers": {"profile": {"type": "sse", "url": "http://b.example/sse"}}}`,
		config + "/Code - Insiders/User/mcp.json":      `{"servers": {"insider": {"command": "i"}}}`,
		".codeium/windsurf/mcp_config.json":            `{"mcpServers": {"surf": {"serverUrl": "https://c.example/sse"}, "off": {"command": "x", "disabled": true}}}`,
		".codex/config.toml":                           "model = \"m\"\n[mcp_servers.dex]\ncommand = \"d\"\nargs = ['a', \"b\"]\ntool_timeout_sec = 2.5\n[mcp_servers.dex.env]\nK = \"v\"\n[mcp_servers.far]\nurl = \"https://d.example/mcp\"\nbearer_token_env_var = \"TOK\"\nenabled = false\n[mcp_servers.far.env_http_headers]\nX-Org = \"ORG\"\n",
		".cline/data/settings/cline_mcp_settings.json": `{"mcpServers": {"line": {"command": "l", "timeout": 60}}}`,
		config + "/Code/User" + storage + "saoudrizwan.claude-dev/settings/cline_mcp_settings.json": std("cline"),
		config + "/Code/User" + storage + "rooveterinaryinc.roo-cline/settings/mcp_settings.json":   `{"mcpServers": {"roo": {"type": "streamable-http", "url": "https://e.example"}}}`,
		config + "/Code/User" + storage + "kilocode.kilo-code/settings/mcp_settings.json":           std("kilo"),
		".gemini/settings.json":               `{"mcpServers": {"stream": {"httpUrl": "https://f.example", "timeout": 5000}, "events": {"url": "https://g.example"}}}`,
		".config/opencode/opencode.jsonc":     `{"mcp": {"timeout": {"startup": 1}, "toggle": {"enabled": false}, "run": {"type": "local", "command": ["bun", "x", "y"], "environment": {"K": "v"}, "enabled": true}, "servers": {"type": "remote", "url": "https://h.example"}}}`,
		zed:                                   `{"context_servers": {"ext": {"source": "extension", "settings": {}}, "new": {"command": "n", "args": []}, "nested": {"command": {"path": "o", "args": ["a"], "env": {"K": "v"}}}}}`,
		".config/amp/settings.json":           `{"amp.showCosts": true, "amp.mcpServers": {"amp": {"command": "a"}}}`,
		".kiro/settings/mcp.json":             std("kiro"),
		".lmstudio/mcp.json":                  std("lm-studio"),
		".copilot/mcp-config.json":            std("copilot"),
		".gemini/config/mcp_config.json":      `{"mcpServers": {"gravity": {"serverUrl": "https://i.example/mcp"}}}`,
		".gemini/antigravity/mcp_config.json": std("antigravity"),
		".config/kilo/kilo.json":              `{"mcp": {"off": {"enabled": false}, "kilo-new": {"type": "local", "command": ["k", "a"], "environment": {"K": "v"}, "enabled": true, "timeout": 1500}}}`,
		".fx/mcp.json":                        `{"mcp": {"fx": {"type": "local", "command": ["f"], "enabled": true}, "far": {"type": "http", "url": "https://j.example", "bearer_token_env": "TOK"}}}`,
		goose:                                 "extensions:\n  developer:\n    type: builtin\n    enabled: true\n  goose: # a comment\n    name: goose\n    type: stdio\n    cmd: npx\n    args: [-y, 'x']\n    envs: {K: v}\n    enabled: false\n    timeout: 300\n  far:\n    type: streamable_http\n    uri: https://k.example/mcp\n    headers: {X: y}\n    enabled: true\n",
		".grok/config.toml":                   "[mcp_servers.grok]\ncommand = \"g\"\nargs = ['a']\n[mcp_servers.far]\nurl = \"https://l.example\"\ntool_timeout_sec = 2\n[mcp_servers.far.headers]\nX = \"y\"\n",
		".junie/mcp/mcp.json":                 std("junie"),
		".kimi-code/mcp.json":                 `{"mcpServers": {"kimi": {"transport": "stdio", "command": "k", "args": [], "toolTimeoutMs": 2500}, "far": {"transport": "sse", "url": "https://m.example"}}}`,
		".mastracode/mcp.json":                std("mastra"),
		".pi/agent/mcp.json":                  `{"mcpServers": {"pi": {"command": "p", "args": [], "requestTimeoutMs": 3500}}}`,
	}
	below := map[string]string{}
	for name, text := range files {
		below["home/"+name] = text
	}
	return below
}

var projectFiles = map[string]string{
	".mcp.json":               `{"mcpServers": {"shared": {"command": "s", "env": {"K": "${K:-d}"}}}}`,
	".cursor/mcp.json":        `{"mcpServers": {"p-cursor": {"command": "s"}}}`,
	".vscode/mcp.json":        `{"servers": {"p-code": {"command": "s"}}}`,
	".vscode/settings.json":   `{"mcp": {"servers": {"p-old": {"command": "s"}}}}`,
	".codex/config.toml":      "[mcp_servers]\np-codex = { command = \"s\", args = [] }\n",
	".roo/mcp.json":           `{"mcpServers": {"p-roo": {"command": "s"}}}`,
	".kilocode/mcp.json":      `{"mcpServers": {"p-kilo": {"command": "s"}}}`,
	".gemini/settings.json":   `{"mcpServers": {"p-gemini": {"command": "s", "cwd": "sub"}}}`,
	"opencode.json":           `{"mcp": {"servers": {"p-open": {"type": "local", "command": ["s"]}}}}`,
	".zed/settings.json":      `{"context_servers": {"p-zed": {"command": "s"}}}`,
	".amp/settings.json":      `{"amp.mcpServers": {"p-amp": {"command": "s"}}}`,
	".kiro/settings/mcp.json": `{"mcpServers": {"p-kiro": {"command": "s"}}}`,
	".github/mcp.json":        `{"mcpServers": {"p-copilot": {"command": "s"}}}`,
	".grok/config.toml":       "[mcp_servers.p-grok]\ncommand = \"s\"\n",
	".junie/mcp/mcp.json":     `{"mcpServers": {"p-junie": {"command": "s"}}}`,
	".kimi-code/mcp.json":     `{"mcpServers": {"p-kimi": {"command": "s"}}}`,
	".mastracode/mcp.json":    `{"mcpServers": {"p-mastra": {"command": "s"}}}`,
	".pi/mcp.json":            `{"mcpServers": {"p-pi": {"command": "s"}}}`,
	"kilo.jsonc":              `{"mcp": {"p-kilo-new": {"type": "local", "command": ["s"]}}}`,
	".kilo/kilo.json":         `{"mcp": {"p-kilo-new2": {"type": "local", "command": ["s"]}}}`,
	".kilocode/kilo.json":     `{"mcp": {"p-kilo-new3": {"type": "local", "command": ["s"]}}}`,
}

// TestFind lists what all hosts have, on all systems.
func TestFind(t *testing.T) {
	for _, goos := range []string{"linux", "darwin", "windows"} {
		t.Run(goos, func(t *testing.T) {
			files := userFiles(goos)
			for name, text := range projectFiles {
				files["src/repo/"+name] = text
			}
			files["src/repo/.git/HEAD"] = "ref"
			files["src/.mcp.json"] = `{"mcpServers": {"above-the-repository": {"command": "no"}}}`
			e, root := machine(t, goos, files, nil)
			e.Dir = filepath.Join(root, "src", "repo", "sub")
			list, err := hosts.Find(e)
			if err != nil {
				t.Fatal(err)
			}
			golden(t, goos, root, list)
		})
	}
}

func golden(t *testing.T, goos, root string, list []hosts.File) {
	t.Helper()
	var b strings.Builder
	for _, f := range list {
		for _, p := range f.Errors {
			t.Errorf("%v", p)
		}
		if f.Err != nil {
			t.Errorf("%v", f.Err)
		}
		fmt.Fprintf(&b, "%s %s %s\n", f.Host, f.Scope, filepath.ToSlash(f.Path))
		for _, s := range f.Servers {
			s.File = ""
			data, err := json.Marshal(s)
			if err != nil {
				t.Fatal(err)
			}
			var m map[string]any
			if err := json.Unmarshal(data, &m); err != nil {
				t.Fatal(err)
			}
			for k, v := range m {
				if v == nil || v == "" || v == false || v == 0.0 || k == "host" {
					delete(m, k)
				}
			}
			if dir, ok := m["project"].(string); ok {
				m["project"] = filepath.ToSlash(dir)
			}
			var line bytes.Buffer
			if err := json.NewEncoder(&line).Encode(m); err != nil {
				t.Fatal(err)
			}
			b.WriteString("  " + line.String())
		}
	}
	got := strings.ReplaceAll(b.String(), filepath.ToSlash(root), "")
	name := filepath.Join("testdata", "find-"+goos+".txt")
	if *update {
		write(t, name, got)
	}
	if diff := cmp.Diff(read(t, name), got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func TestFindFoldersOfVariables(t *testing.T) {
	files := map[string]string{
		"cc/.claude.json":       `{"mcpServers": {"cc": {"command": "x"}}}`,
		"cx/config.toml":        "[mcp_servers.cx]\ncommand = 'x'",
		"xdg/opencode.json":     `{"mcp": {"no": {"command": ["x"]}}}`,
		"xdg/zed/settings.json": `{"context_servers": {"zed": {"command": "x"}}}`,
		"home/.claude.json":     `{"mcpServers": {"unread": {"command": "x"}}}`,
		"oc.jsonc":              `{"mcp": {"oc": {"type": "local", "command": ["x"]}}} // end`,
	}
	vars := map[string]string{}
	e, root := machine(t, "linux", files, vars)
	vars["CLAUDE_CONFIG_DIR"] = filepath.Join(root, "cc")
	vars["CODEX_HOME"] = filepath.Join(root, "cx")
	vars["XDG_CONFIG_HOME"] = filepath.Join(root, "xdg")
	vars["OPENCODE_CONFIG"] = filepath.Join(root, "oc.jsonc")
	list, err := hosts.Find(e)
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, f := range list {
		for _, s := range f.Servers {
			got = append(got, s.Host+":"+s.Name)
		}
	}
	if diff := cmp.Diff([]string{"claude-code:cc", "codex:cx", "opencode:oc", "zed:zed"}, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// TestFindOutside shows that files above a working directory outside of the home folder and of
// repositories are not read, because any user may have created them.
func TestFindOutside(t *testing.T) {
	e, root := machine(t, "linux", map[string]string{
		".mcp.json":     `{"mcpServers": {"anybody": {"command": "x"}}}`,
		"src/.mcp.json": `{"mcpServers": {"here": {"command": "x"}}}`,
	}, nil)
	list, err := hosts.Find(e)
	if err != nil || len(list) != 1 || list[0].Servers[0].Name != "here" || list[0].Servers[0].Project != filepath.Join(root, "src") {
		t.Errorf("got %+v, %v", list, err)
	}
	e.Dir = filepath.Join(root, "home", "a", "b")
	write(t, filepath.Join(root, "home", "a", ".mcp.json"), `{"mcpServers": {"mine": {"command": "x"}}}`)
	list, err = hosts.Find(e)
	if err != nil || len(list) != 1 || list[0].Servers[0].Name != "mine" {
		t.Errorf("below home: got %+v, %v", list, err)
	}
}

// TestFindBroken shows that an error has the position of the fault and quotes nothing of the file,
// and that the other files are listed.
func TestFindBroken(t *testing.T) {
	const secret = "hunter2"
	deep := strings.Repeat("[", 100_000)
	for _, tt := range []struct{ name, file, text, want string }{
		{"cut off", ".cursor/mcp.json", `{"mcpServers": {`, "1:17: unexpected end of file"},
		{"cut off string", ".cursor/mcp.json", "{\n\"" + secret, "2:9: unexpected end of file"},
		{"bad escape", ".cursor/mcp.json", "{\n \"a\": \"" + secret + `\x"}`, "2:7: neither a string, a number, true, false nor null"},
		{"bare word", ".cursor/mcp.json", `{"a": ` + secret + `}`, "1:7: neither a string, a number, true, false nor null"},
		{"no comma", ".cursor/mcp.json", `{"a": 1 "b": 2}`, "1:9: invalid character '\"' after object value (expecting ',' or '}')"},
		{"deep", ".cursor/mcp.json", deep, "1:257: nested more than 256 deep"},
		{"many", ".cursor/mcp.json", "[" + strings.Repeat("0,", 200_001), "1:400003: more than 200000 values"},
		{"huge", ".cursor/mcp.json", strings.Repeat(" ", 16<<20) + "{}", "the file is larger than 16 MiB"},
		{"nul", ".cursor/mcp.json", "{\n\x00}", "2:1: NUL byte: not a text file"},
		{"list", ".cursor/mcp.json", "[]", "1:1: not a table"},
		{"toml", ".codex/config.toml", "a = 1\nb = " + secret, "2:5: not TOML: "},
		{"toml twice", ".codex/config.toml", "a = 1\na = 2", "2:1: not TOML: "},
		{"toml deep", ".codex/config.toml", "a = " + strings.Repeat("[", 300) + strings.Repeat("]", 300), "nested more than 256 deep"},
		{"toml many", ".codex/config.toml", "a = [" + strings.Repeat("0,", 200_001) + "]", "more than 200000 values"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			e, root := machine(t, "linux", map[string]string{"home/" + tt.file: tt.text, "home/.kiro/settings/mcp.json": `{"mcpServers": {"ok": {"command": "x"}}}`}, nil)
			list, err := hosts.Find(e)
			if err != nil || len(list) != 2 {
				t.Fatalf("got %+v, %v", list, err)
			}
			if list[0].Err == nil || list[1].Servers[0].Name != "ok" {
				t.Fatalf("got %+v", list)
			}
			text := strings.TrimPrefix(list[0].Err.Error(), filepath.Join(root, "home", tt.file))
			if !strings.Contains(text, tt.want) || strings.Contains(text, secret) {
				t.Errorf("got %q, want %q", text, tt.want)
			}
		})
	}
}

func TestFindUnusualFiles(t *testing.T) {
	e, root := machine(t, "linux", map[string]string{
		"home/.cursor/mcp.json/folder": "",
		"home/.kiro":                   "a file where a folder should be",
		"home/.lmstudio/mcp.json":      "  \n",
		"home/.gemini/settings.json":   `{"theme": "x"}`,
	}, nil)
	list, err := hosts.Find(e)
	if err != nil || len(list) != 1 || !strings.HasSuffix(list[0].Err.Error(), "not a regular file") {
		t.Errorf("got %+v, %v", list, err)
	}
	if os.Geteuid() > 0 {
		path := filepath.Join(root, "home", ".gemini", "settings.json")
		if err := os.Chmod(path, 0); err != nil {
			t.Fatal(err)
		}
		if list, _ := hosts.Find(e); len(list) != 2 {
			t.Errorf("unreadable: got %+v", list)
		}
	}
}

func TestFindEntries(t *testing.T) {
	e, _ := machine(t, "linux", map[string]string{"home/.cursor/mcp.json": `{"mcpServers": {
		"ok": {"command": "a", "args": ["x", 1], "env": {"N": 1, "B": true}, "timeout": 1500},
		"twice": {"command": "first"},
		"a": {"command": ["b"], "args": "c"},
		"b": 7,
		"c": {},
		"d": {"command": "x", "args": "y z"},
		"e": {"command": "x", "env": {"SECRET": {"a": "hunter2"}}},
		"f": {"url": 5},
		"twice": {"command": "last"},
		"\u001b[31m\u202e": {"command": "x", "args": null, "env": null, "url": null}
	}}`}, nil)
	list, err := hosts.Find(e)
	if err != nil || len(list) != 1 {
		t.Fatalf("got %+v, %v", list, err)
	}
	var names, problems []string
	for _, s := range list[0].Servers {
		names = append(names, s.Name+"="+s.Command)
	}
	for _, p := range list[0].Errors {
		problems = append(problems, fmt.Sprintf("%d:%d %s", p.Line, p.Column, p.Reason))
	}
	if diff := cmp.Diff([]string{"ok=a", "a=b", "twice=last", "\x1b[31m\u202e=x"}, names); diff != "" {
		t.Errorf("servers (-want +got):\n%s", diff)
	}
	want := []string{`5:8 server "b" is not a table`, `6:8 server "c" has neither a command nor a URL`, `7:33 args is not a list of strings`,
		`8:43 "SECRET" of env is not a string`, `9:16 "url" is not a string`}
	if diff := cmp.Diff(want, problems); diff != "" {
		t.Errorf("problems (-want +got):\n%s", diff)
	}
	if s := list[0].Servers[0]; s.Env["N"] != "1" || s.Env["B"] != "true" || s.Args[1] != "1" || s.TimeoutMS != 1500 {
		t.Errorf("got %+v", s)
	}
}
