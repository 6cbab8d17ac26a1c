package config

import (
	"os"
	"time"
)

// A Watcher sees changes of a file by its time, size and identity. It follows symbolic links, so it
// also sees the swap of a link, as of a ConfigMap of Kubernetes. It is not safe for concurrent use.
type Watcher struct {
	path string
	// seen is the file that the caller knows, and last the one at the last call. They are nil if
	// there was none.
	seen, last os.FileInfo
}

// NewWatcher returns a watcher of a file. It sees changes after this call.
func NewWatcher(path string) *Watcher {
	w := &Watcher{path: path}
	w.Forget()
	return w
}

// PollInterval is how often to call [Watcher.Changed].
const PollInterval = time.Second

// Changed reports whether the file differs from the one at the last change, and is the same as at
// the last call. So a change is reported once it is complete, at the second call after it. A file
// that is gone has not changed.
func (w *Watcher) Changed() bool {
	now, err := os.Stat(w.path)
	if err != nil {
		w.last = nil
		return false
	}
	settled := SameVersion(now, w.last)
	w.last = now
	if !settled || SameVersion(now, w.seen) {
		return false
	}
	w.seen = now
	return true
}

// Forget makes the watcher ignore the changes of the file until now, for example because the caller
// is about to read it anyway.
func (w *Watcher) Forget() {
	now, err := os.Stat(w.path)
	if err != nil {
		now = nil
	}
	w.seen, w.last = now, now
}

// SameVersion reports whether two descriptions, which are nil if there is no file, are of the same
// unchanged file. The time alone does not tell two writes within a few milliseconds apart.
func SameVersion(a, b os.FileInfo) bool {
	if a == nil || b == nil {
		return a == nil && b == nil
	}
	return os.SameFile(a, b) && a.Size() == b.Size() && a.ModTime().Equal(b.ModTime())
}
