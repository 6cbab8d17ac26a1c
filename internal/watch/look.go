package watch

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"time"

	"mcpwire/capture"
	"mcpwire/internal/captures"
	"mcpwire/internal/live"
)

const (
	lookEvery = 100 * time.Millisecond // between two looks at the folders
	lookFull  = 5 * time.Second        // after which a folder is read although its time says that nothing is new
	fresh     = 2 * time.Second        // that the time of a folder must be old before it is trusted: it may be coarse
	maxTaps   = 256                    // that are watched at once
)

// A looker looks for what is new in the folders.
type looker struct {
	h     *Hub
	seen  map[string]bool // names in Dir
	dir   folder
	socks folder
}

func newLooker(h *Hub) *looker {
	return &looker{h: h, seen: map[string]bool{}, dir: folder{path: h.opts.Dir}, socks: folder{path: h.opts.Live}}
}

// A folder knows when it was read last.
type folder struct {
	path     string
	modified time.Time
	read     time.Time
}

// news reports whether something may be new in the folder.
func (f *folder) news() bool {
	if f.path == "" {
		return false
	}
	info, err := os.Stat(f.path)
	if err != nil {
		return false
	}
	now, modified := time.Now(), info.ModTime()
	if modified.Equal(f.modified) && f.read.Sub(modified) > fresh && now.Sub(f.read) < lookFull {
		return false
	}
	f.modified, f.read = modified, now
	return true
}

// first returns what is to be read at the beginning.
func (l *looker) first() (list []*source) {
	h := l.h
	for _, path := range h.opts.Files {
		s, added := h.addFile(path, !compressed(path))
		if !added {
			continue
		}
		if err := looksLikeCapture(path); err != nil {
			s.claim()
			s.end(err)
			continue
		}
		if info, err := captures.Stat(path); err == nil {
			s.begun = info.Begun
		}
		list = append(list, s)
	}
	if h.opts.Dir == "" {
		return list
	}
	l.dir.news()
	infos, err := captures.List(h.opts.Dir)
	if err != nil {
		s, _ := h.addFile(h.opts.Dir, false)
		s.claim()
		s.end(err)
	}
	past := 0
	for _, info := range infos { // the newest first
		l.seen[filepath.Base(info.Path)] = true
		// One that was begun just now may not be locked yet.
		writing := info.State == captures.Writing || info.State == captures.Dead && time.Since(info.Changed).Abs() < fresh
		if !writing {
			if past++; h.opts.Past >= 0 && past > h.opts.Past {
				continue
			}
		}
		if s, added := h.addFile(info.Path, writing); added {
			s.begun = info.Begun
			list = append(list, s)
		}
	}
	return list
}

// run looks until ctx ends.
func (l *looker) run(ctx context.Context) {
	ticker := time.NewTicker(lookEvery)
	defer ticker.Stop()
	for {
		l.captures()
		l.taps()
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
	}
}

// captures looks for new captures.
func (l *looker) captures() {
	if !l.dir.news() {
		return
	}
	d, err := os.Open(l.dir.path)
	if err != nil {
		return // it may come back
	}
	defer d.Close()
	names, _ := d.Readdirnames(-1) // what could be read
	now := make(map[string]bool, len(names))
	for _, name := range names {
		if !strings.HasSuffix(strings.TrimSuffix(strings.TrimSuffix(name, ".gz"), ".zst"), capture.Suffix) {
			continue
		}
		now[name] = true
		if l.seen[name] {
			continue
		}
		path := filepath.Join(l.dir.path, name)
		if info, err := os.Lstat(path); err != nil || !info.Mode().IsRegular() {
			continue
		}
		if s, added := l.h.addFile(path, true); added && s.claim() {
			l.h.start(s.run)
		}
	}
	l.seen = now
}

// taps looks for new sockets.
func (l *looker) taps() {
	if !l.socks.news() {
		return
	}
	paths, err := live.List(l.socks.path)
	h := l.h
	if err != nil { // nothing is done with a folder that others have access to
		if s, added := h.addFile(l.socks.path, false); added {
			s.claim()
			s.end(err)
		}
		return
	}
	for _, path := range paths {
		h.smu.Lock()
		known := h.connected[path] || len(h.connected) >= maxTaps
		if !known {
			h.connected[path] = true
		}
		h.smu.Unlock()
		if !known {
			h.start(func(ctx context.Context) { h.watchTap(ctx, path) })
		}
	}
}
