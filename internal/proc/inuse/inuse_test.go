package inuse

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
)

func TestRetry(t *testing.T) {
	busy, other := errors.New("busy"), errors.New("other")
	for _, test := range []struct {
		name   string
		errs   []error // of the tries; the last is repeated
		want   error
		inUse  bool
		tries  int // 0 does not count them
		longer time.Duration
	}{
		{name: "at once", errs: []error{nil}, tries: 1},
		{name: "another error", errs: []error{other}, want: other, tries: 1},
		{name: "after a while", errs: []error{busy, busy, busy, nil}, tries: 4, longer: 3 * time.Millisecond},
		{name: "another error after a while", errs: []error{busy, other}, want: other, tries: 2, longer: time.Millisecond},
		{name: "never", errs: []error{busy}, want: busy, inUse: true, longer: retryTimeout - maxDelay},
	} {
		t.Run(test.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				tries := 0
				begun := time.Now()
				err := retry(func() error {
					tries++
					return test.errs[min(tries, len(test.errs))-1]
				}, func(err error) bool { return err == busy })
				if !errors.Is(err, test.want) || errors.Is(err, ErrInUse) != test.inUse {
					t.Errorf("got %v, want %v", err, test.want)
				}
				if test.tries > 0 && tries != test.tries {
					t.Errorf("tried %d times, want %d", tries, test.tries)
				}
				if took := time.Since(begun); took < test.longer || took > retryTimeout {
					t.Errorf("took %v", took)
				}
			})
		})
	}
}

func write(t *testing.T, path, text string) {
	t.Helper()
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

func TestRename(t *testing.T) {
	dir := t.TempDir()
	from, to := filepath.Join(dir, "from"), filepath.Join(dir, "to")
	write(t, to, "old")
	for _, text := range []string{"new", "newer"} {
		write(t, from, text)
		reader, err := os.Open(to) // closed after a moment
		if err != nil {
			t.Fatal(err)
		}
		timer := time.AfterFunc(50*time.Millisecond, func() { reader.Close() })
		if err := Rename(from, to); err != nil {
			t.Error(err)
		}
		timer.Stop()
		reader.Close()
		got, err := os.ReadFile(to)
		if diff := cmp.Diff(text, string(got)); diff != "" || err != nil {
			t.Error(err, diff)
		}
	}
	if err := Rename(from, to); !errors.Is(err, fs.ErrNotExist) || errors.Is(err, ErrInUse) {
		t.Errorf("no such file: got %v", err)
	}
	if err := os.Mkdir(from, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := Rename(to, from); err == nil || errors.Is(err, ErrInUse) {
		t.Errorf("over a folder: got %v", err)
	}
}

func TestOpen(t *testing.T) {
	path := filepath.Join(t.TempDir(), "file")
	f, err := Open(path, os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		t.Fatal(err)
	}
	f.Close()
	if _, err := Open(path+"x", os.O_RDONLY, 0); !errors.Is(err, fs.ErrNotExist) || strings.Contains(err.Error(), ErrInUse.Error()) {
		t.Errorf("no such file: got %v", err)
	}
}

// TestReplace checks the content, the mode and the description of a replaced file, and that nothing
// is left behind, also after an error.
func TestReplace(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "f")
	for _, content := range []string{"first", "", "second"} {
		described, err := Replace(path, []byte(content))
		if err != nil {
			t.Fatal(err)
		}
		got, err := os.ReadFile(path)
		if err != nil || string(got) != content {
			t.Errorf("got %q, %v, want %q", got, err, content)
		}
		info, err := os.Stat(path)
		if err != nil || !os.SameFile(described, info) || described.Size() != info.Size() {
			t.Errorf("got the description of another file, %v", err)
		}
		if runtime.GOOS != "windows" && info.Mode() != 0o600 {
			t.Errorf("got mode %v", info.Mode())
		}
	}
	if err := os.MkdirAll(filepath.Join(dir, "folder", "x"), 0o700); err != nil {
		t.Fatal(err)
	}
	if _, err := Replace(filepath.Join(dir, "folder"), nil); err == nil {
		t.Error("a folder was replaced")
	}
	if names, err := filepath.Glob(filepath.Join(dir, "*")); err != nil || len(names) != 2 {
		t.Errorf("got files %v, %v, want f and folder", names, err)
	}
}
