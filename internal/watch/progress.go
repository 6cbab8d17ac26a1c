package watch

import "time"

// progressLimiter keeps the news of how far sources are read from coming too often.
type progressLimiter struct{ last time.Time }

const progressInterval = 250 * time.Millisecond

// setProgress notes how far a source was read, and how large it is; -1 if that is not known.
func (s *source) setProgress(read, size int64) {
	h := s.hub
	h.sourcesMu.Lock()
	s.info.Read = read
	s.info.Size = max(s.info.Size, size, read)
	news := h.progressDueLocked()
	h.sourcesMu.Unlock()
	if news {
		h.signalFeeds()
	}
}

// addProgress adds to how far a source was read.
func (s *source) addProgress(n int64) {
	h := s.hub
	h.sourcesMu.Lock()
	s.info.Read += n
	s.info.Size = max(s.info.Size, s.info.Read)
	news := h.progressDueLocked()
	h.sourcesMu.Unlock()
	if news {
		h.signalFeeds()
	}
}

// progressDueLocked reports whether it is time to tell of progress. h.smu is held.
func (h *Hub) progressDueLocked() bool {
	now := time.Now()
	if now.Sub(h.progress.last) < progressInterval {
		return false
	}
	h.progress.last = now
	h.sourcesVersion++
	return true
}
