package captures_test

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"mcpwire/capture"
	"mcpwire/cmd/internal/trace/captures"
)

func TestDir(t *testing.T) {
	home := t.TempDir()
	t.Setenv("MCPWIRE_HOME", home)
	got, err := captures.Dir()
	if want := filepath.Join(home, "captures"); err != nil || got != want {
		t.Errorf("Dir() = %q, %v, want %q", got, err, want)
	}
	if runtime.GOOS != "linux" {
		return
	}
	t.Setenv("MCPWIRE_HOME", "")
	t.Setenv("HOME", "/home/u")
	for _, tt := range []struct{ state, want string }{
		{"/state", "/state/mcpwire/captures"},
		{"", "/home/u/.local/state/mcpwire/captures"},
		{"relative", "/home/u/.local/state/mcpwire/captures"},
	} {
		t.Setenv("XDG_STATE_HOME", tt.state)
		if got, err := captures.Dir(); err != nil || got != tt.want {
			t.Errorf("XDG_STATE_HOME=%q: Dir() = %q, %v, want %q", tt.state, got, err, tt.want)
		}
	}
}

func TestFileName(t *testing.T) {
	for _, tt := range []struct{ name, want string }{
		{"fs", "fs"},
		{"", "server"},
		{"../../etc/passwd", "etc-passwd"},
		{"https://example.com:8080/mcp?x=1", "https-example-com-8080-mcp-x-1"},
		{"-rf", "rf"},
		{".hidden", "hidden"},
		{"NUL.txt", "NUL-txt"},
		{"a\x00b\nc\u202ed", "a-b-c-d"},
		{"日本", "server"},
		{strings.Repeat("x", 500), strings.Repeat("x", 64)},
	} {
		if got := captures.FileName(tt.name); got != tt.want {
			t.Errorf("FileName(%q) = %q, want %q", tt.name, got, tt.want)
		}
	}
}

// record creates a capture of n messages and leaves it open.
func record(t *testing.T, dir, name string, n int) *capture.File {
	t.Helper()
	f, err := captures.Create(dir, name, &capture.Options{Tool: "test", Transport: "stdio"})
	if err != nil {
		t.Fatal(err)
	}
	for range n {
		f.Record(&capture.Event{Kind: capture.KindMessage, Dir: capture.ToServer, Data: []byte(`{"jsonrpc":"2.0","method":"m"}`)})
	}
	if err := f.Flush(t.Context()); err != nil {
		t.Fatal(err)
	}
	return f
}

func TestCreate(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "a", "captures")
	f := record(t, dir, "my/server", 3)
	defer f.Close()
	g := record(t, dir, "my/server", 0) // most likely in the same second: its name must be unique
	defer g.Close()
	if f.Name() == g.Name() {
		t.Errorf("both are %s", f.Name())
	}
	if re := regexp.MustCompile(`^my-server-\d{8}T\d{6}Z-\d+\.mcpcap\.ndjson$`); !re.MatchString(filepath.Base(f.Name())) {
		t.Errorf("the name is %s", f.Name())
	}
	if runtime.GOOS == "windows" {
		return
	}
	for path, want := range map[string]os.FileMode{dir: 0o700 | os.ModeDir, f.Name(): 0o600} {
		if info, err := os.Stat(path); err != nil || info.Mode() != want {
			t.Errorf("%s has mode %v, %v, want %v", path, info.Mode(), err, want)
		}
	}
}

func TestList(t *testing.T) {
	dir := t.TempDir()
	if list, err := captures.List(filepath.Join(dir, "none")); len(list) != 0 || err != nil {
		t.Errorf("a missing folder: %v, %v", list, err)
	}
	closed := record(t, dir, "one", 3)
	if err := closed.Close(); err != nil {
		t.Fatal(err)
	}
	writing := record(t, dir, "two", 2)
	defer writing.Close()
	head := func(name string) string {
		return `{"k":"head","v":1,"id":"` + name + `","at":"2020-01-0` + name + `T00:00:00Z","tool":"t","transport":"http","name":"old` + name + `","redact":"default"}` + "\n"
	}
	for name, text := range map[string]string{
		"dead.mcpcap.ndjson": head("2") + `{"n":1,"t":0.1,"k":"note","len":1,"raw":"x"}` + "\n",
		// the last line is incomplete
		"cut.mcpcap.ndjson":      head("1") + `{"n":1,"t":0.1,"k":"tail","events":1,"lost":0}`,
		"other.txt":              "",
		"endless.mcpcap.ndjson":  strings.Repeat("x", 1<<20),
		"squeezed.mcpcap.ndjson": "",
	} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Mkdir(filepath.Join(dir, "dir.mcpcap.ndjson"), 0o700); err != nil {
		t.Fatal(err)
	}
	// not supported on every system
	_ = os.Symlink(closed.Name(), filepath.Join(dir, "link.mcpcap.ndjson"))

	list, err := captures.List(dir)
	if err != nil {
		t.Fatal(err)
	}
	got := map[string]string{}
	for _, i := range list {
		name := i.Name
		if name == "" {
			name = filepath.Base(i.Path)
		}
		got[name] = fmt.Sprintf("%s %s %d %v", i.Transport, i.State, i.Events, i.Size > 0)
	}
	want := map[string]string{
		"one": "stdio closed 3 true", "two": "stdio writing 0 true",
		"old1": "http dead 0 true", "old2": "http dead 0 true",
		"endless.mcpcap.ndjson": " dead 0 true", "squeezed.mcpcap.ndjson": " dead 0 false",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("List (-want +got):\n%s", diff)
	}
	if last := list[len(list)-1]; last.Name != "old1" {
		t.Errorf("the last is %+v, want the oldest", last)
	}
}

func TestFind(t *testing.T) {
	dir := t.TempDir()
	if _, err := captures.Newest(dir); !errors.Is(err, captures.ErrNotFound) {
		t.Errorf("Newest of none: %v", err)
	}
	f := record(t, dir, "fs", 1)
	defer f.Close()
	for _, name := range []string{"fs", filepath.Base(f.Name()), strings.TrimSuffix(filepath.Base(f.Name()), ".mcpcap.ndjson")} {
		if got, err := captures.Find(dir, name); err != nil || got.Path != f.Name() {
			t.Errorf("Find(%q) = %+v, %v", name, got, err)
		}
	}
	if _, err := captures.Find(dir, "fsx"); !errors.Is(err, captures.ErrNotFound) {
		t.Errorf("Find of none: %v", err)
	}
	if got, err := captures.Newest(dir); err != nil || len(got) != 1 || got[0].Path != f.Name() {
		t.Errorf("Newest = %+v, %v", got, err)
	}
}

func TestNewest(t *testing.T) {
	day := time.Date(2026, 11, 22, 0, 0, 0, 0, time.UTC)
	// A file is a capture with its times of beginning and end, in hours.
	type file struct {
		name, tool string
		from, to   int
	}
	for _, tt := range []struct {
		name  string
		files []file
		want  []string
	}{
		{"one host with three servers", []file{{"a", "t", 1, 5}, {"b", "t", 1, 4}, {"c", "t", 2, 6}}, []string{"c", "b", "a"}},
		{"an earlier session", []file{{"a", "t", 1, 2}, {"b", "t", 3, 5}, {"c", "t", 4, 5}}, []string{"c", "b"}},
		{"a resent request", []file{{"a", "t", 1, 2}, {"a resent", "t", 3, 4}}, []string{"a"}},
		{"a probe", []file{{"a", "t", 1, 2}, {"probe", "mcpwire check 1", 3, 4}}, []string{"a"}},
		{"a server called probe", []file{{"a", "t", 1, 2}, {"probe", "mcpwire 1", 3, 4}}, []string{"probe"}},
		{"only probes", []file{{"probe", "mcpwire check 1", 3, 4}}, nil},
	} {
		dir := t.TempDir()
		for i, f := range tt.files {
			path := filepath.Join(dir, fmt.Sprintf("%d.mcpcap.ndjson", i))
			at := day.Add(time.Duration(f.from) * time.Hour).Format(time.RFC3339)
			head := fmt.Sprintf(`{"k":"head","v":1,"id":"%d","at":%q,"tool":%q,"transport":"stdio","name":%q,"redact":"default"}`, i, at, f.tool, f.name)
			if err := os.WriteFile(path, []byte(head+"\n"), 0o600); err != nil {
				t.Fatal(err)
			}
			end := day.Add(time.Duration(f.to) * time.Hour)
			if err := os.Chtimes(path, end, end); err != nil {
				t.Fatal(err)
			}
		}
		list, err := captures.Newest(dir)
		if (err != nil) != (tt.want == nil) {
			t.Errorf("%s: %v", tt.name, err)
		}
		var got []string
		for _, i := range list {
			got = append(got, i.Name)
		}
		if diff := cmp.Diff(tt.want, got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", tt.name, diff)
		}
	}
}

// TestNewestWritten shows that captures that are being written precede complete ones.
func TestNewestWritten(t *testing.T) {
	dir := t.TempDir()
	for _, name := range []string{"a", "b"} {
		f := record(t, dir, name, 1)
		defer f.Close()
	}
	if err := record(t, dir, "c", 1).Close(); err != nil {
		t.Fatal(err)
	}
	list, err := captures.Newest(dir)
	if err != nil || len(list) != 2 {
		t.Fatalf("Newest = %+v, %v, want a and b", list, err)
	}
	for _, i := range list {
		if i.State != captures.Writing {
			t.Errorf("%s is %s", i.Name, i.State)
		}
	}
}

func TestCreateProbe(t *testing.T) {
	dir := t.TempDir()
	if err := record(t, dir, "probe", 1).Close(); err != nil { // a server of that name
		t.Fatal(err)
	}
	for range 8 {
		f, err := captures.CreateProbe(dir, "1", &capture.Options{Transport: "stdio"})
		if err != nil {
			t.Fatal(err)
		}
		if err := f.Close(); err != nil {
			t.Fatal(err)
		}
	}
	list, err := captures.List(dir)
	if err != nil || len(list) != 6 {
		t.Errorf("%d captures, %v, want five probes and one other", len(list), err)
	}
	if list, err := captures.Newest(dir); err != nil || len(list) != 1 || list[0].Tool != "test" {
		t.Errorf("Newest = %+v, %v", list, err)
	}
}

func TestPrune(t *testing.T) {
	now := time.Date(2026, 11, 22, 0, 0, 0, 0, time.UTC)
	for _, tt := range []struct {
		name  string
		prune captures.Pruner
		left  string
	}{
		{"no options", captures.Pruner{}, "1 2 3 4"},
		{"by age", captures.Pruner{MaxAge: 60 * time.Hour}, "1 2"},
		{"by size", captures.Pruner{MaxBytes: 2500}, "1 2"},
		{"by size, a smaller one after one that does not fit", captures.Pruner{MaxBytes: 3100}, "1 2"},
		{"dry run", captures.Pruner{MaxAge: time.Hour, DryRun: true}, "1 2 3 4"},
		{"everything", captures.Pruner{MaxBytes: 1}, ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			dir := t.TempDir()
			for i, size := range []int{1000, 1000, 2000, 100} { // of 1, 2, 3 and 4 days ago
				path := filepath.Join(dir, fmt.Sprintf("%d.mcpcap.ndjson", i+1))
				if err := os.WriteFile(path, make([]byte, size), 0o600); err != nil {
					t.Fatal(err)
				}
				if err := os.Chtimes(path, now, now.Add(-time.Duration(i+1)*24*time.Hour)); err != nil {
					t.Fatal(err)
				}
			}
			tt.prune.Now = now
			removed, err := tt.prune.Run(dir)
			if err != nil {
				t.Fatal(err)
			}
			var left []string
			entries, _ := os.ReadDir(dir)
			for _, e := range entries {
				left = append(left, e.Name()[:1])
			}
			if got := strings.Join(left, " "); got != tt.left {
				t.Errorf("left are %q, want %q", got, tt.left)
			}
			if !tt.prune.DryRun && len(removed)+len(left) != 4 {
				t.Errorf("%d removed, %d left", len(removed), len(left))
			}
		})
	}
}

func TestPruneSparesWriting(t *testing.T) {
	dir := t.TempDir()
	f := record(t, dir, "fs", 1)
	defer f.Close()
	removed, err := captures.Pruner{MaxAge: time.Hour, MaxBytes: 1, Now: time.Now().Add(48 * time.Hour)}.Run(dir)
	if len(removed) != 0 || err != nil {
		t.Errorf("removed %v, %v", removed, err)
	}
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
	removed, err = captures.Pruner{MaxBytes: 1}.Run(dir)
	if len(removed) != 1 || err != nil {
		t.Errorf("after it was closed: removed %v, %v", removed, err)
	}
}

// Create a capture, and find it.
func Example() {
	dir, err := os.MkdirTemp("", "captures")
	if err != nil {
		panic(err)
	}
	defer os.RemoveAll(dir)
	f, err := captures.Create(dir, "my server", nil)
	if err != nil {
		panic(err)
	}
	f.Record(&capture.Event{Kind: capture.KindNote, Data: []byte("hello")})
	if err := f.Close(); err != nil {
		panic(err)
	}
	info, err := captures.Find(dir, "my server")
	fmt.Println(info.Name, info.State, info.Events, err)
	// Output: my server closed 1 <nil>
}

// TestCreateFile checks that a capture with a given path counts as being written.
func TestCreateFile(t *testing.T) {
	f, err := captures.CreateFile(filepath.Join(t.TempDir(), "a"+capture.Suffix), nil)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if info, err := captures.Stat(f.Name()); err != nil || info.State != captures.Writing {
		t.Errorf("the state is %s, %v, want %s", info.State, err, captures.Writing)
	}
}

// TestCreateNumbered checks the names of captures whose file exists.
func TestCreateNumbered(t *testing.T) {
	for _, tt := range []struct{ name, want string }{
		{"a", "a-2"},
		{"a.ndjson", "a-2.ndjson"},
		{"a.mcpcap.ndjson", "a-2.mcpcap.ndjson"},
		{"a.mcpcap.ndjson.gz", "a-2.mcpcap.ndjson.gz"},
		{"a.b.zst", "a.b-2.zst"},
		{"a.log", "a-2.log"},
		{".ndjson", "-2.ndjson"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			dir := t.TempDir()
			for _, want := range []string{tt.name, tt.want} {
				f, err := captures.CreateFile(filepath.Join(dir, tt.name), nil)
				if err != nil {
					t.Fatal(err)
				}
				defer f.Close()
				if got := filepath.Base(f.Name()); got != want {
					t.Errorf("got %s, want %s", got, want)
				}
			}
		})
	}
}

// TestCloseUnlocks checks that Close unlocks a capture, independent of the garbage collector.
func TestCloseUnlocks(t *testing.T) {
	f, err := captures.Create(t.TempDir(), "x", nil)
	if err != nil {
		t.Fatal(err)
	}
	state := func() captures.State {
		info, err := captures.Stat(f.Name())
		if err != nil {
			t.Fatal(err)
		}
		return info.State
	}
	if got := state(); got != captures.Writing {
		t.Errorf("before: %s, want %s", got, captures.Writing)
	}
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
	if got := state(); got != captures.Complete {
		t.Errorf("after: %s, want %s", got, captures.Complete)
	}
	// without its last line, only the lock shows that it is complete
	if err := os.Truncate(f.Name(), 10); err != nil {
		t.Fatal(err)
	}
	if got := state(); got != captures.Truncated {
		t.Errorf("without its last line: %s, want %s", got, captures.Truncated)
	}
	if err := os.Remove(f.Name()); err != nil {
		t.Error(err)
	}
	runtime.KeepAlive(f)
}
