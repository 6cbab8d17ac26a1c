package capture

import "iter"

// Merge returns the events of several captures in one timeline, by the wall clocks of those who recorded them; within each capture the order stays. Event.Capture
// tells them apart. The event is good until the next. A capture that fails yields its error and is over, the others go on.
func Merge(captures ...iter.Seq2[*Event, error]) iter.Seq2[*Event, error] {
	return func(yield func(*Event, error) bool) {
		type source struct {
			next func() (*Event, error, bool)
			ev   *Event
		}
		var open []*source
		advance := func(s *source) (alive bool, more bool) {
			e, err, ok := s.next()
			s.ev = e
			if err != nil {
				return false, yield(nil, err)
			}
			return ok, true
		}
		for _, c := range captures {
			next, stop := iter.Pull2(c)
			defer stop()
			s := &source{next: next}
			alive, more := advance(s)
			if !more {
				return
			}
			if alive {
				open = append(open, s)
			}
		}
		for len(open) > 0 {
			first := 0
			for i, s := range open {
				if s.ev.At.Before(open[first].ev.At) {
					first = i
				}
			}
			s := open[first]
			if !yield(s.ev, nil) {
				return
			}
			alive, more := advance(s)
			if !more {
				return
			}
			if !alive {
				open = append(open[:first], open[first+1:]...)
			}
		}
	}
}
