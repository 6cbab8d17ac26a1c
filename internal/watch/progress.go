package watch

import "time"

// progress keeps the news of how far sources are read from coming too often.
type progress struct{ last time.Time }

const progressEvery = 250 * time.Millisecond

// progressed notes how far a source was read, and how large it is; -1 if that is not known.
func (s *source) progressed(read, size int64) {
	h := s.hub
	h.smu.Lock()
	s.info.Read = read
	s.info.Size = max(s.info.Size, size, read)
	news := h.tick()
	h.smu.Unlock()
	if news {
		h.wakeFeeds()
	}
}

// advance adds to how far a source was read.
func (s *source) advance(n int64) {
	h := s.hub
	h.smu.Lock()
	s.info.Read += n
	s.info.Size = max(s.info.Size, s.info.Read)
	news := h.tick()
	h.smu.Unlock()
	if news {
		h.wakeFeeds()
	}
}

// tick reports whether it is time to tell of progress. h.smu is held.
func (h *Hub) tick() bool {
	now := time.Now()
	if now.Sub(h.progress.last) < progressEvery {
		return false
	}
	h.progress.last = now
	h.sourcesNow++
	return true
}
