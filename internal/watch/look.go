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
	scanInterval     = 100 * time.Millisecond // between two looks at the folders
	fullScanInterval = 5 * time.Second        // after which a folder is read although its time says that nothing is new
	mtimeSlack       = 2 * time.Second        // that the time of a folder must be old before it is trusted: it may be coarse
	maxTaps          = 256                    // that are watched at once
)

// A looker looks for what is new in the folders.
type dirScanner struct {
	hub     *Hub
	seen    map[string]bool // names in Dir
	dir     polledDir
	sockets polledDir
}

func newDirScanner(h *Hub) *dirScanner {
	return &dirScanner{hub: h, seen: map[string]bool{}, dir: polledDir{path: h.opts.Dir}, sockets: polledDir{path: h.opts.SocketDir}}
}

// A folder knows when it was read last.
type polledDir struct {
	path     string
	modified time.Time
	read     time.Time
}

// mayHaveChanged reports whether something may be new in the folder.
func (pd *polledDir) mayHaveChanged() bool {
	if pd.path == "" {
		return false
	}
	info, err := os.Stat(pd.path)
	if err != nil {
		return false
	}
	now, modified := time.Now(), info.ModTime()
	if modified.Equal(pd.modified) && pd.read.Sub(modified) > mtimeSlack && now.Sub(pd.read) < fullScanInterval {
		return false
	}
	pd.modified, pd.read = modified, now
	return true
}

// initial returns what is to be read at the beginning.
func (ds *dirScanner) initial() (list []*source) {
	h := ds.hub
	for _, path := range h.opts.Files {
		s, added := h.addFile(path, !compressed(path))
		if !added {
			continue
		}
		if err := checkCapture(path); err != nil {
			s.claim()
			s.finish(err)
			continue
		}
		if info, err := captures.Stat(path); err == nil {
			s.captureStart = info.Started
		}
		list = append(list, s)
	}
	if h.opts.Dir == "" {
		return list
	}
	ds.dir.mayHaveChanged()
	infos, err := captures.List(h.opts.Dir)
	if err != nil {
		s, _ := h.addFile(h.opts.Dir, false)
		s.claim()
		s.finish(err)
	}
	past := 0
	for _, info := range infos { // the newest first
		ds.seen[filepath.Base(info.Path)] = true
		// One that was begun just now may not be locked yet.
		writing := info.State == captures.Writing || info.State == captures.Truncated && time.Since(info.Modified).Abs() < mtimeSlack
		if !writing {
			if past++; h.opts.MaxFinished >= 0 && past > h.opts.MaxFinished {
				continue
			}
		}
		if s, added := h.addFile(info.Path, writing); added {
			s.captureStart = info.Started
			list = append(list, s)
		}
	}
	return list
}

// run looks until ctx ends.
func (ds *dirScanner) run(ctx context.Context) {
	ticker := time.NewTicker(scanInterval)
	defer ticker.Stop()
	for {
		ds.scanCaptures()
		ds.scanTaps()
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
	}
}

// scanCaptures looks for new captures.
func (ds *dirScanner) scanCaptures() {
	if !ds.dir.mayHaveChanged() {
		return
	}
	d, err := os.Open(ds.dir.path)
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
		if ds.seen[name] {
			continue
		}
		path := filepath.Join(ds.dir.path, name)
		if info, err := os.Lstat(path); err != nil || !info.Mode().IsRegular() {
			continue
		}
		if s, added := ds.hub.addFile(path, true); added && s.claim() {
			ds.hub.start(s.run)
		}
	}
	ds.seen = now
}

// scanTaps looks for new sockets.
func (ds *dirScanner) scanTaps() {
	if !ds.sockets.mayHaveChanged() {
		return
	}
	paths, err := live.List(ds.sockets.path)
	h := ds.hub
	if err != nil { // nothing is done with a folder that others have access to
		if s, added := h.addFile(ds.sockets.path, false); added {
			s.claim()
			s.finish(err)
		}
		return
	}
	for _, path := range paths {
		h.sourcesMu.Lock()
		known := h.followedTaps[path] || len(h.followedTaps) >= maxTaps
		if !known {
			h.followedTaps[path] = true
		}
		h.sourcesMu.Unlock()
		if !known {
			h.start(func(ctx context.Context) { h.followTap(ctx, path) })
		}
	}
}
