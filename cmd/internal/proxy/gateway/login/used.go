package login

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"sync"
	"time"
)

const (
	// usedLife is how long a text is remembered after its use. It is invalid after pageLife.
	usedLife = pageLife + maxSkew
	// maxUsed limits the texts in memory.
	maxUsed = 20_000
	// sweepInterval is the time between two searches for files that are no longer needed.
	sweepInterval = time.Minute
)

// A usedSet holds texts that were used up: ids of pages, and states. With a folder, all gateways
// that share it have the same set, also after a restart. Its methods may be called by many
// goroutines at once.
type usedSet struct {
	// dir has an empty file for each text, whose name is the hash of the text. It is "" if texts
	// are in memory.
	dir string

	mu sync.Mutex
	// texts has the time until which each text in memory is remembered.
	texts map[string]time.Time
	// swept is when files were last removed.
	swept time.Time
}

func openUsedSet(dir string) (*usedSet, error) {
	if dir == "" {
		return &usedSet{texts: map[string]time.Time{}}, nil
	}
	return &usedSet{dir: dir}, os.MkdirAll(dir, 0o700)
}

func (s *usedSet) path(text string) string {
	sum := sha256.Sum256([]byte(text))
	return filepath.Join(s.dir, hex.EncodeToString(sum[:16]))
}

// add adds a text. It reports false if the set has it already.
func (s *usedSet) add(text string) (first bool, err error) {
	if s.dir == "" {
		return s.addToMemory(text), nil
	}
	s.sweep()
	// Creating a file is atomic, also in the folders of network file systems.
	f, err := os.OpenFile(s.path(text), os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
	if errors.Is(err, fs.ErrExist) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	return true, f.Close()
}

func (s *usedSet) addToMemory(text string) (first bool) {
	now := time.Now()
	s.mu.Lock()
	defer s.mu.Unlock()
	if now.Before(s.texts[text]) {
		return false
	}
	if len(s.texts) >= maxUsed {
		maps.DeleteFunc(s.texts, func(_ string, until time.Time) bool { return now.After(until) })
	}
	if len(s.texts) >= maxUsed {
		clear(s.texts) // authorization servers accept a code once
	}
	s.texts[text] = now.Add(usedLife)
	return true
}

// has reports if the set has a text.
func (s *usedSet) has(text string) bool {
	if s.dir != "" {
		_, err := os.Lstat(s.path(text))
		return err == nil
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return time.Now().Before(s.texts[text])
}

// sweep removes the files of texts that are invalid by now, from time to time.
func (s *usedSet) sweep() {
	now := time.Now()
	s.mu.Lock()
	due := now.Sub(s.swept) >= sweepInterval
	if due {
		s.swept = now
	}
	s.mu.Unlock()
	if !due {
		return
	}
	files, err := os.ReadDir(s.dir)
	if err != nil {
		return // add reports it
	}
	for _, f := range files {
		// The clock of a file server may differ, too.
		if info, err := f.Info(); err == nil && now.Sub(info.ModTime()) > usedLife+maxSkew {
			_ = os.Remove(filepath.Join(s.dir, f.Name())) // another gateway may have removed it
		}
	}
}
