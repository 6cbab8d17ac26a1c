package tap

import (
	"hash/maphash"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"
)

const (
	watchInterval = 300 * time.Millisecond
	// maxWatched limits the names that one scan visits.
	maxWatched = 20000
)

// A watcher detects changes of files by polling, which works on every file system and for editors
// that replace files.
type watcher struct {
	globs []string
	seed  maphash.Seed
	// scanned counts the names in this scan.
	scanned int
}

// watchFiles requests a restart when files have changed and then stayed the same for one scan. The
// returned function stops it.
func (sv *supervisor) watchFiles(globs []string) (stop func()) {
	if len(globs) == 0 {
		return func() {}
	}
	w := &watcher{globs: globs, seed: maphash.MakeSeed()}
	quit := make(chan struct{})
	var wg sync.WaitGroup
	last, _ := w.scan()
	wg.Go(func() {
		tick := time.NewTicker(watchInterval)
		defer tick.Stop()
		changed := ""
		noted := false
		for {
			select {
			case <-quit:
				return
			case <-tick.C:
			}
			now, newest := w.scan()
			switch {
			case now != last:
				last, changed = now, newest
			case changed != "":
				sv.requestRestart("files have changed: " + changed)
				changed = ""
			}
			if w.scanned > maxWatched && !noted {
				noted = true
				sv.rec.note("too many files match: not all of them are watched")
			}
		}
	})
	return func() {
		close(quit)
		wg.Wait()
	}
}

// scan returns a hash of the names, times and sizes of all matching files, and the pattern of the
// newest.
func (w *watcher) scan() (sum uint64, newest string) {
	w.scanned = 0
	var latest time.Time
	for _, glob := range w.globs {
		w.walk(glob, func(name string) {
			info, err := os.Stat(name)
			if err != nil || info.IsDir() {
				return
			}
			var h maphash.Hash
			h.SetSeed(w.seed)
			_, _ = h.WriteString(name) // never fails
			maphash.WriteComparable(&h, [2]int64{info.ModTime().UnixNano(), info.Size()})
			sum += h.Sum64() // independent of the order
			if t := info.ModTime(); newest == "" || t.After(latest) {
				latest, newest = t, glob
			}
		})
	}
	if newest == "" && len(w.globs) > 0 {
		newest = w.globs[0]
	}
	return sum, newest
}

// walk calls f with the files that match a pattern.
func (w *watcher) walk(glob string, f func(name string)) {
	before, after, deep := strings.Cut(filepath.ToSlash(glob), "**")
	if !deep {
		names, _ := filepath.Glob(glob) // the pattern is valid
		for _, name := range names {
			if w.scanned++; w.scanned > maxWatched {
				return
			}
			f(name)
		}
		return
	}
	roots, _ := filepath.Glob(filepath.FromSlash(strings.TrimSuffix(before, "/")))
	if before == "" {
		roots = []string{"."}
	} else if before == "/" {
		roots = []string{"/"}
	}
	after = strings.TrimPrefix(after, "/")
	for _, root := range roots {
		_ = filepath.WalkDir(root, func(name string, d fs.DirEntry, err error) error {
			if w.scanned++; w.scanned > maxWatched {
				return filepath.SkipAll
			}
			switch {
			case err != nil:
				return nil // it may have been removed
			case d.IsDir() && name != root && (d.Name() == "node_modules" || d.Name() == ".git"):
				return filepath.SkipDir // large and rarely edited
			case !d.IsDir() && matchTail(after, filepath.ToSlash(name)):
				f(name)
			}
			return nil
		})
	}
}

// matchTail reports whether the last elements of a name match a pattern with as many elements.
func matchTail(pattern, name string) bool {
	if pattern == "" {
		return true
	}
	elements := strings.Split(name, "/")
	n := strings.Count(pattern, "/") + 1
	if len(elements) < n {
		return false
	}
	ok, err := filepath.Match(pattern, strings.Join(elements[len(elements)-n:], "/"))
	return err == nil && ok
}
