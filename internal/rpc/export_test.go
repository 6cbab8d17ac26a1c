package rpc

func (s *requestSet) len() int {
	if s.single == nil {
		return len(s.rest)
	}
	return len(s.rest) + 1
}
