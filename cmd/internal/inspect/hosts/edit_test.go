package hosts_test

import (
	"errors"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"mcpwire/cmd/internal/inspect/hosts"
)

var tap = []string{"/bin/mcpwire", "tap", "--name", "fs", "--"}

func open(t *testing.T, e *hosts.Env, path string) *hosts.Document {
	t.Helper()
	d, err := hosts.Open(e, path)
	if err != nil {
		t.Fatal(err)
	}
	return d
}

// TestWrapText checks the text of wrapped entries of all shapes.
func TestWrapText(t *testing.T) {
	for _, tt := range []struct{ name, file, pointer, text, want string }{
		{"named like a separator", "c.json", "/mcpServers/--", `{"mcpServers": {"--": {"command": "x"}}}`, `{"mcpServers": {"--": {"command": "/bin/mcpwire", "args": ["tap", "--name", "--", "--", "x"]}}}`},
		{"dense", "c.json", "/mcpServers/fs", `{"mcpServers":{"fs":{"command":"x"}}}`, `{"mcpServers":{"fs":{"command":"/bin/mcpwire","args":["tap","--name","fs","--","x"]}}}`},
		{"lines", "c.json", "/mcpServers/fs", "{\r\n  \"mcpServers\": {\r\n    \"fs\": {\r\n      \"command\": \"x\",\r\n      \"env\": {}\r\n    }\r\n  }\r\n}",
			"{\r\n  \"mcpServers\": {\r\n    \"fs\": {\r\n      \"command\": \"/bin/mcpwire\",\r\n      \"args\": [\"tap\", \"--name\", \"fs\", \"--\", \"x\"],\r\n      \"env\": {}\r\n    }\r\n  }\r\n}"},
		{"trailing comma", "c.jsonc", "/fs", `{"fs": {"command": "x", "args": [1.50, ],},}`, `{"fs": {"command": "/bin/mcpwire", "args": ["tap", "--name", "fs", "--", "x", 1.50, ],},}`},
		{"empty args", "c.json", "/fs", `{"fs": {"args": [ /* none */ ], "command": "x"}}`, `{"fs": {"args": ["tap", "--name", "fs", "--", "x" /* none */ ], "command": "/bin/mcpwire"}}`},
		{"argv", "c.json", "/mcp/fs", `{"mcp": {"fs": {"type": "local", "command": ["x", "y"]}}}`, `{"mcp": {"fs": {"type": "local", "command": ["/bin/mcpwire", "tap", "--name", "fs", "--", "x", "y"]}}}`},
		{"nested", "c.json", "/context_servers/fs", `{"context_servers": {"fs": {"command": {"path": "x", "args": ["y"]}}}}`, `{"context_servers": {"fs": {"command": {"path": "/bin/mcpwire", "args": ["tap", "--name", "fs", "--", "x", "y"]}}}}`},
		{"table", "c.toml", "/mcp_servers/fs", "[mcp_servers.fs]\n  command = 'x' # c\n  [mcp_servers.fs.env]\n", "[mcp_servers.fs]\n  command = \"/bin/mcpwire\" # c\n  args = [\"tap\", \"--name\", \"fs\", \"--\", 'x']\n  [mcp_servers.fs.env]\n"},
		{"no line end", "c.toml", "/mcp_servers/fs", "[mcp_servers.fs]\r\ncommand = 'x'", "[mcp_servers.fs]\r\ncommand = \"/bin/mcpwire\"\r\nargs = [\"tap\", \"--name\", \"fs\", \"--\", 'x']"},
		{"dotted", "c.toml", "/mcp_servers/fs", "[mcp_servers]\nfs.command = 'x'\n", "[mcp_servers]\nfs.command = \"/bin/mcpwire\"\nfs.args = [\"tap\", \"--name\", \"fs\", \"--\", 'x']\n"},
		{"inline", "c.toml", "/mcp_servers/fs", "mcp_servers = {fs = {command='x'}}", "mcp_servers = {fs = {command=\"/bin/mcpwire\", args=[\"tap\", \"--name\", \"fs\", \"--\", 'x']}}"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			e, root := machine(t, "linux", map[string]string{"src/" + tt.file: tt.text}, nil)
			path := filepath.Join(root, "src", tt.file)
			tap := slices.Clone(tap)
			if tt.pointer == "/mcpServers/--" {
				tap[3] = "--"
			}
			edit(t, e, path, func(d *hosts.Document) error { return d.Wrap(tt.pointer, tap) })
			if diff := cmp.Diff(tt.want, read(t, path)); diff != "" {
				t.Fatalf("wrapped (-want +got):\n%s", diff)
			}
			d := open(t, e, path)
			if err := d.Wrap(tt.pointer, tap); !errors.Is(err, hosts.ErrWrapped) {
				t.Errorf("again: got %v", err)
			}
			if changed, err := d.Save(); changed || err != nil {
				t.Errorf("saved nothing: %v, %v", changed, err)
			}
			edit(t, e, path, func(d *hosts.Document) error { return d.Unwrap(tt.pointer) })
			if diff := cmp.Diff(tt.text, read(t, path)); diff != "" {
				t.Errorf("unwrapped (-want +got):\n%s", diff)
			}
			if err := open(t, e, path).Unwrap(tt.pointer); !errors.Is(err, hosts.ErrNotWrapped) {
				t.Errorf("unwrapped again: got %v", err)
			}
		})
	}
}

// TestUnwrapWithoutRecord shows that an entry is unwrapped even if the tap was added by hand, or
// its record is lost.
func TestUnwrapWithoutRecord(t *testing.T) {
	for _, tt := range []struct{ text, want string }{
		{`{"s": {"command": "mcpwire", "args": ["tap", "--check", "--", "x", "y"]}}`, `{"s": {"command": "x", "args": ["y"]}}`},
		{`{"s": {"command": "C:\\x\\MCPWIRE.EXE", "args": ["tap", "--", "x", ]}}`, `{"s": {"command": "x", "args": [ ]}}`},
		{`{"s": {"command": "mcpwire", "args": ["tap", "--", "x" , ]}}`, `{"s": {"command": "x", "args": [ ]}}`},
		{`{"s": {"command": "/o/renamed", "args": ["tap", "--name", "n", "--", "x"]}}`, `{"s": {"command": "x", "args": []}}`},
		{`{"s": {"command": "mcpwire", "args": ["tap", "--"]}}`, ""},
		{`{"s": {"command": "other", "args": ["tap", "--", "x"]}}`, ""},
		{`{"s": {"command": "mcpwire", "args": ["serve", "--", "x"]}}`, ""},
	} {
		e, root := machine(t, "linux", map[string]string{"src/c.json": tt.text}, nil)
		path := filepath.Join(root, "src", "c.json")
		d := open(t, e, path)
		err := d.Unwrap("/s")
		if tt.want == "" {
			if !errors.Is(err, hosts.ErrNotWrapped) {
				t.Errorf("%s: got %v", tt.text, err)
			}
			continue
		}
		if got := string(d.Result()); err != nil || got != tt.want {
			t.Errorf("%s: got %s, %v", tt.text, got, err)
		}
	}
}

// TestUnwrapOthers checks a server that another program wrapped, which our record does not list.
// The backup contains it wrapped, so it cannot be used once that is undone.
func TestUnwrapOthers(t *testing.T) {
	const text = `{"a": {"command": "x"}, "b": {"command": "mcpwire", "args": ["tap", "--", "y"]}}`
	const want = `{"a": {"command": "x"}, "b": {"command": "y", "args": []}}`
	unwrap := func(pointers ...string) func(*hosts.Document) error {
		return func(d *hosts.Document) (err error) {
			for _, p := range pointers {
				err = errors.Join(err, d.Unwrap(p))
			}
			return err
		}
	}
	for _, tt := range []struct {
		name  string
		steps [][]string
	}{{"one by one", [][]string{{"/b"}, {"/a"}}}, {"at once", [][]string{{"/a", "/b"}}}, {"ours first", [][]string{{"/a"}, {"/b"}}}} {
		e, root := machine(t, "linux", map[string]string{"src/c.json": text}, nil)
		path := filepath.Join(root, "src", "c.json")
		edit(t, e, path, func(d *hosts.Document) error { return d.Wrap("/a", tap) })
		for _, step := range tt.steps {
			edit(t, e, path, unwrap(step...))
		}
		if diff := cmp.Diff(want, read(t, path)); diff != "" {
			t.Errorf("%s (-want +got):\n%s", tt.name, diff)
		}
	}
}

func TestWrapURL(t *testing.T) {
	const text = `{"mcpServers": {"a": {"url": "https:\/\/u:p@a.example/mcp?k=v", "headers": {}}, "b": {"command": "x"}, "c": {"url": "${U}/mcp"}, "d": {"url": "https://d.example/${P}/mcp?k=${K}"}}}`
	e, root := machine(t, "linux", map[string]string{"home/.cursor/mcp.json": text}, nil)
	path := filepath.Join(root, "home", ".cursor", "mcp.json")
	d := open(t, e, path)
	if err := d.Wrap("/mcpServers/a", tap); !errors.Is(err, hosts.ErrRemote) {
		t.Errorf("got %v, want ErrRemote", err)
	}
	for _, tt := range []struct{ pointer, listen string }{{"/mcpServers/b", ":9"}, {"/mcpServers/c", ":9"}, {"/mcpServers/a", "nine"}} {
		if err := d.WrapURL(tt.pointer, tt.listen); err == nil {
			t.Errorf("%v: no error", tt)
		}
	}
	edit(t, e, path, func(d *hosts.Document) error { return d.WrapURL("/mcpServers/a", ":9000") })
	if got := read(t, path); !strings.Contains(got, `"url": "http://127.0.0.1:9000/mcp?k=v"`) {
		t.Errorf("got %s", got)
	}
	d = open(t, e, path)
	if err := d.WrapURL("/mcpServers/d", ":9001"); err != nil || !strings.Contains(string(d.Result()), `"url": "http://127.0.0.1:9001/${P}/mcp?k=${K}"`) {
		t.Errorf("variables: got %s, %v", d.Result(), err)
	}
	s, err := hosts.Resolve(e, "a")
	if err != nil || !s.Wrapped || s.URL != "https://u:p@a.example/mcp?k=v" {
		t.Errorf("got %+v, %v", s, err)
	}
	if err := open(t, e, path).WrapURL("/mcpServers/a", ":9000"); !errors.Is(err, hosts.ErrWrapped) {
		t.Errorf("got %v, want ErrWrapped", err)
	}
	write(t, path, strings.Replace(read(t, path), `"x"`, `"y"`, 1))
	edit(t, e, path, func(d *hosts.Document) error { return d.Unwrap("/mcpServers/a") })
	if diff := cmp.Diff(strings.Replace(text, `"x"`, `"y"`, 1), read(t, path)); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// TestSaveFile checks that mode and link are preserved, that the backup is private, and that no
// temporary file remains.
func TestSaveFile(t *testing.T) {
	if runtime.GOOS == "windows" {
		t.Skip("modes and links are those of Unix")
	}
	const text = `{"fs": {"command": "x"}}`
	e, root := machine(t, "linux", map[string]string{"dotfiles/real.json": text}, nil)
	real, link := filepath.Join(root, "dotfiles", "real.json"), filepath.Join(root, "src", "link.json")
	if err := errors.Join(os.Chmod(real, 0o640), os.Symlink("../dotfiles/real.json", link)); err != nil {
		t.Fatal(err)
	}
	edit(t, e, link, func(d *hosts.Document) error { return d.Wrap("/fs", tap) })
	info, err := os.Lstat(link)
	if err != nil || info.Mode()&os.ModeSymlink == 0 {
		t.Errorf("the link is gone: %v, %v", info, err)
	}
	if info, err = os.Stat(real); err != nil || info.Mode().Perm() != 0o640 {
		t.Errorf("mode %v, %v", info.Mode(), err)
	}
	entries, err := os.ReadDir(filepath.Dir(real))
	if err != nil || len(entries) != 1 {
		t.Errorf("left behind: %v, %v", entries, err)
	}
	var kept []string
	err = filepath.WalkDir(filepath.Join(root, "state"), func(path string, entry os.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		kept = append(kept, entry.Name())
		if info, err := entry.Info(); err != nil || info.Mode().Perm() != 0o600 {
			t.Errorf("%s: mode %v, %v", path, info.Mode(), err)
		}
		if strings.HasPrefix(entry.Name(), "backup") && read(t, path) != text {
			t.Errorf("%s is no backup", path)
		}
		return nil
	})
	if slices.Sort(kept); err != nil || !slices.Equal(kept, []string{"backup-000001", "record.json"}) {
		t.Errorf("kept %v, %v", kept, err)
	}
	for range 30 {
		edit(t, e, link, func(d *hosts.Document) error { return d.Unwrap("/fs") })
		edit(t, e, link, func(d *hosts.Document) error { return d.Wrap("/fs", tap) })
	}
	dirs, err := filepath.Glob(filepath.Join(root, "state", "hosts", "*", "backup-*"))
	if err != nil || len(dirs) > 11 {
		t.Errorf("%d backups, %v", len(dirs), err)
	}
	edit(t, e, link, func(d *hosts.Document) error { return d.Unwrap("/fs") })
	if got := read(t, real); got != text {
		t.Errorf("got %s", got)
	}
}

// TestSaveLoses shows that of two processes that edit a file at once, the second changes neither
// the file nor the first one's record.
func TestSaveLoses(t *testing.T) {
	const text = `{"a": {"url": "https://a.example/mcp"}, "b": {"command": "x"}}`
	e, root := machine(t, "linux", map[string]string{"src/c.json": text}, nil)
	path := filepath.Join(root, "src", "c.json")
	second := open(t, e, path)
	if err := second.Wrap("/b", tap); err != nil {
		t.Fatal(err)
	}
	edit(t, e, path, func(d *hosts.Document) error { return d.WrapURL("/a", ":9000") })
	if changed, err := second.Save(); changed || !errors.Is(err, hosts.ErrChanged) {
		t.Errorf("got %v, %v, want ErrChanged", changed, err)
	}
	edit(t, e, path, func(d *hosts.Document) error { return d.Unwrap("/a") })
	if diff := cmp.Diff(text, read(t, path)); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func TestSaveRejects(t *testing.T) {
	const text = `{"fs": {"command": "x"}, "other": {"command": "y"}}`
	e, root := machine(t, "linux", map[string]string{"src/c.json": text}, nil)
	path := filepath.Join(root, "src", "c.json")
	prepared := func() *hosts.Document {
		d := open(t, e, path)
		if err := d.Wrap("/fs", tap); err != nil {
			t.Fatal(err)
		}
		return d
	}
	d := prepared()
	write(t, path, text+"\n")
	if changed, err := d.Save(); changed || !errors.Is(err, hosts.ErrChanged) {
		t.Errorf("changed meanwhile: %v, %v", changed, err)
	}
	if got := read(t, path); got != text+"\n" {
		t.Errorf("it was overwritten: %s", got)
	}
	if left, _ := filepath.Glob(filepath.Join(root, "src", ".*")); len(left) > 0 {
		t.Errorf("left behind: %v", left)
	}
	d = prepared()
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
	if changed, err := d.Save(); changed || err == nil {
		t.Errorf("removed meanwhile: %v, %v", changed, err)
	}
	write(t, path, text)
	d = prepared()
	if err := os.Chmod(path, 0o444); err != nil {
		t.Fatal(err)
	}
	if f, err := os.OpenFile(path, os.O_WRONLY, 0); err == nil { // root may, also in Wine
		_ = f.Close()
	} else if changed, err := d.Save(); changed || !errors.Is(err, os.ErrPermission) {
		t.Errorf("read only: %v, %v", changed, err)
	}
	if err := os.Chmod(path, 0o600); err != nil {
		t.Fatal(err)
	}
	nowhere := *e
	nowhere.Home, nowhere.Lookup = "", nil
	d, err := hosts.Open(&nowhere, path)
	if err != nil {
		t.Fatal(err)
	}
	if err := d.Wrap("/fs", tap); err != nil {
		t.Fatal(err)
	}
	if changed, err := d.Save(); changed || !errors.Is(err, hosts.ErrNoState) {
		t.Errorf("no state: %v, %v", changed, err)
	}
}

func TestWrapRejects(t *testing.T) {
	e, root := machine(t, "linux", map[string]string{"src/c.json": `{"no": {}, "empty": {"command": ""}, "argv": {"command": []}, "twice": {"command": "a", "command": "b"}, "args": {"command": "a", "args": "b"}, "list": [1], "ok": {"command": "x"}}`}, nil)
	d := open(t, e, filepath.Join(root, "src", "c.json"))
	for _, tt := range []struct {
		pointer string
		want    error
	}{{"/nope", hosts.ErrNoEntry}, {"", hosts.ErrNoEntry}, {"/ok/command/x", hosts.ErrNoEntry}, {"/list/0", hosts.ErrNoEntry}} {
		if err := d.Wrap(tt.pointer, tap); !errors.Is(err, tt.want) {
			t.Errorf("%s: got %v, want %v", tt.pointer, err, tt.want)
		}
	}
	for _, pointer := range []string{"/no", "/empty", "/argv", "/twice", "/args", "/list"} {
		if err := d.Wrap(pointer, tap); err == nil {
			t.Errorf("%s: no error", pointer)
		}
	}
	if err := d.Wrap("/ok", []string{"sh", "-c"}); err == nil {
		t.Error("an invalid wrapper: no error")
	}
	if err := d.Wrap("/ok", tap); err != nil {
		t.Error(err)
	}
	if err := d.Wrap("/ok", tap); err == nil {
		t.Error("twice in one document: no error")
	}
}

func TestDiff(t *testing.T) {
	const text = `{
	// export TOKEN=s3cret and "s3cret" too
	"apiKey": "s3cret",
	"theme": ["dark", {"theme": "s3cret"}], "mcpServers": {
		"fs": {
			"env": {"TOKEN": "s3cret", "theme": "s3cret"}, /* s3cret: "s3cret" */
			"command": "x",
			"args": ["--token", "s3cret"]
		},
		"b": {"url": "https://s3cret@b.example", "headers": {"A": "s3cret"}, "args": ["\u001b[31m"]}
	}
}`
	const want = `--- c.json
+++ c.json
@@ -4,8 +4,8 @@
	"theme": ["dark", {"theme": "~hidden~"}], "mcpServers": {
		"fs": {
			"env": {"TOKEN": "~hidden~", "theme": "~hidden~"}, /* s3cret: ~hidden~ */
-			"command": "x",
-			"args": ["--token", "~hidden~"]
+			"command": "/bin/mcpwire",
+			"args": ["tap", "--name", "fs", "--", "x", "--token", "~hidden~"]
		},
		"b": {"url": "https://~hidden~@b.example", "headers": {"A": "~hidden~"}, "args": ["\u001b[31m"]}
	}
`
	e, root := machine(t, "linux", map[string]string{"src/c.json": text}, nil)
	path := filepath.Join(root, "src", "c.json")
	d := open(t, e, path)
	mask := func(command []string) []string {
		for i, s := range command {
			if s == "s3cret" {
				command[i] = hosts.Placeholder
			}
		}
		return command
	}
	harmless := func(name, _ string) bool { return name == "theme" }
	if got := d.Diff(mask, harmless); got != "" {
		t.Errorf("nothing changes: %s", got)
	}
	if err := d.Wrap("/mcpServers/fs", tap); err != nil {
		t.Fatal(err)
	}
	got := strings.ReplaceAll(strings.ReplaceAll(d.Diff(mask, harmless), path, "c.json"), "\n ", "\n")
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if read(t, path) != text {
		t.Error("the diff has written the file")
	}
}
