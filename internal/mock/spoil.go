package mock

import (
	"mcpwire/internal/jsonwire"
	"mcpwire/jsonrpc"

	"mcpwire/internal/era"
)

// meet returns the faults that a request meets.
func (s *Server) meet(a *play, m *jsonrpc.Message) []*Fault {
	if len(s.opts.Faults) == 0 {
		return nil
	}
	sub := &subject{play: a, text: jsonrpc.AppendRequest(nil, m.ID, string(m.Method), m.Params), params: m.Params}
	var met []*Fault
	for _, f := range s.opts.Faults {
		if f.filter.Match(s.ctx, sub) && s.hits(f) {
			s.opts.Logger.Info("fault", "what", f.String(), "method", clip(a.method, 128), "id", clip(string(a.id), 64))
			met = append(met, f)
		}
	}
	return met
}

// hits counts a request that a fault's filter holds for, and reports whether it is one that goes wrong.
func (s *Server) hits(f *Fault) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	f.seen++
	if f.every > 0 && f.seen%f.every != 0 || f.first > 0 && f.seen > f.first {
		return false
	}
	return f.chance == 0 || s.chance.Float64() < f.chance
}

// refuse answers with a status of HTTP, if a fault says so. It reports whether it did.
func (a *play) refuse() bool {
	for _, f := range a.faults {
		if f.act == actStatus && a.wire != nil && a.wire.refuse(f.n) {
			return true
		}
	}
	return false
}

// faultError returns the error that a fault answers with; nil if none does.
func (a *play) faultError() *jsonrpc.Error {
	for _, f := range a.faults {
		if f.act == actError {
			return f.err
		}
	}
	return nil
}

// garbage is what no parser takes.
const garbage = `{"jsonrpc": garbage`

// spoil does to an answer what the faults say, in their order. The error says that there is none any more.
func (a *play) spoil(answer []byte) ([]byte, error) {
	for _, f := range a.faults {
		switch f.act {
		case actID:
			a.swapID()
		case actDelay:
			if err := a.wait(f.delay); err != nil {
				return nil, err
			}
		case actDrop:
			a.hold()
			return nil, errEnded
		case actExit:
			a.peer.srv.stop(&ExitError{f.n})
			if a.wire != nil {
				a.wire.abort()
			}
			return nil, errEnded
		}
	}
	answer = a.named(answer)
	for _, f := range a.faults {
		switch f.act {
		case actGarbage:
			if !a.peer.pipe {
				answer = append([]byte(garbage+" "), answer...)
				continue
			}
			_ = a.out.Send([]byte(garbage)) // a client that is gone has none
		case actStray:
			if a.peer.pipe {
				_ = a.out.Send([]byte(f.text)) // likewise
			}
		case actDuplicate:
			answer = a.twice(answer)
		case actTruncate:
			answer = a.truncate(answer, f.n)
		}
	}
	return answer, nil
}

// twice has an answer be there twice: as two messages where that can be.
func (a *play) twice(answer []byte) []byte {
	if a.mute {
		return append(append(answer, ' '), answer...)
	}
	_ = a.out.Send(answer) // a client that is gone has none
	return answer
}

// truncate leaves n bytes of an answer, below 0 half of it. Over HTTP the connection breaks there.
func (a *play) truncate(answer []byte, n int) []byte {
	if n < 0 {
		n = len(answer) / 2
	}
	if a.wire != nil {
		a.wire.cutAfter(n)
		return answer
	}
	return answer[:min(n, len(answer))]
}

// swapID gives an answer the id of another request that is under way, which gets this one's; if there is none, a number becomes a string, and a string another one.
func (a *play) swapID() {
	p := a.peer
	p.mu.Lock()
	defer p.mu.Unlock()
	if a.swap != nil {
		return // another has done it
	}
	for b := range p.plays {
		if b != a && b.swap == nil && !b.id.Equal(a.id) {
			a.swap, b.swap = b.id, a.id
			return
		}
	}
	if text, isString := a.id.Text(); isString {
		a.swap = jsonrpc.StringID(text + "~")
	} else {
		a.swap = jsonrpc.StringID(string(a.id))
	}
}

// named gives an answer the id that it has by a fault, this request's own or another's.
func (a *play) named(answer []byte) []byte {
	a.peer.mu.Lock()
	id := a.swap
	a.peer.mu.Unlock()
	if id == nil {
		return answer
	}
	return withID(answer, id)
}

func withID(text []byte, id jsonrpc.ID) []byte {
	return era.Rewrite(nil, text, func(m *jsonwire.Members) []byte {
		if m.KeyIs("id") {
			return id
		}
		return m.Value()
	}, nil)
}
