package login

import (
	"os"
	"path/filepath"
	"testing"
	"testing/synctest"
	"time"
)

// TestUsedSet checks that a text is added once, also to the set of another gateway with the folder,
// and that it is forgotten when it is invalid anyway.
func TestUsedSet(t *testing.T) {
	for _, tt := range []struct {
		name   string
		shared bool
	}{{"memory", false}, {"folder", true}} {
		t.Run(tt.name, func(t *testing.T) {
			dir := ""
			if tt.shared {
				dir = t.TempDir()
			}
			synctest.Test(t, func(t *testing.T) {
				one, err := openUsedSet(dir)
				must(t, err)
				two := one
				if tt.shared {
					two, err = openUsedSet(dir)
					must(t, err)
				}
				add := func(s *usedSet, text string, want bool) {
					t.Helper()
					if got, err := s.add(text); got != want || err != nil {
						t.Errorf("add %s: got %v, %v, want %v", text, got, err, want)
					}
				}
				if one.has("a") {
					t.Error("an empty set has a text")
				}
				add(one, "a", true)
				add(two, "a", false)
				add(two, "b", true)
				if !one.has("a") || !two.has("a") || !one.has("b") {
					t.Error("a text is missing")
				}
				if !tt.shared {
					time.Sleep(usedLife)
					add(one, "a", true)
				}
			})
		})
	}
}

// TestUsedSetSweep checks that the files of texts that are invalid by now are removed.
func TestUsedSetSweep(t *testing.T) {
	s, err := openUsedSet(t.TempDir())
	must(t, err)
	for _, text := range []string{"old", "new"} {
		_, err := s.add(text)
		must(t, err)
	}
	old := time.Now().Add(-usedLife - maxSkew - time.Second)
	must(t, os.Chtimes(s.path("old"), old, old))
	s.swept = time.Time{}
	if _, err := s.add("another"); err != nil {
		t.Fatal(err)
	}
	if s.has("old") || !s.has("new") {
		t.Errorf("after the sweep: old %v, new %v", s.has("old"), s.has("new"))
	}
}

// TestUsedSetWithoutFolder checks that a text is not accepted if its use cannot be stored.
func TestUsedSetWithoutFolder(t *testing.T) {
	s, err := openUsedSet(t.TempDir())
	must(t, err)
	must(t, os.RemoveAll(s.dir))
	if first, err := s.add("a"); first || err == nil {
		t.Errorf("got %v, %v", first, err)
	}
}

// TestUsedFolder checks that used links are stored where gateways with the same keys find them, and
// that a gateway without keys opens no sealed text.
func TestUsedFolder(t *testing.T) {
	dir := t.TempDir()
	for _, tt := range []struct {
		name, folder string
		ring         bool
		want         string
	}{
		{"neither", "", false, ""},
		{"a folder", dir, false, ""},
		{"keys", "", true, ""},
		{"both", dir, true, filepath.Join(dir, "used")},
	} {
		o := &Options{URL: "http://127.0.0.1:1", Folder: tt.folder}
		if tt.ring {
			o.Ring = newRing(t, 1)
		}
		l, err := New(o)
		must(t, err)
		if l.used.dir != tt.want {
			t.Errorf("%s: used links are in %q, want %q", tt.name, l.used.dir, tt.want)
		}
		if !tt.ring && l.open("x", maxPageID, purposePage, new(pageTicket)) {
			t.Errorf("%s: a text was opened", tt.name)
		}
		l.Close()
	}
}
