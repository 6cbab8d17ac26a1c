package mock

import (
	"mcpwire/internal/jsonwire"
	"mcpwire/jsonrpc"

	"mcpwire/internal/era"
)

// matchFaults returns the faults that a request meets.
func (s *Server) matchFaults(r *responder, m *jsonrpc.Message) []*Fault {
	if len(s.opts.Faults) == 0 {
		return nil
	}
	sub := &subject{responder: r, text: jsonrpc.AppendRequest(nil, m.ID, string(m.Method), m.Params), params: m.Params}
	var met []*Fault
	for _, f := range s.opts.Faults {
		if f.filter.Match(s.ctx, sub) && s.triggers(f) {
			s.opts.Logger.Info("fault", "what", f.String(), "method", clip(r.method, 128), "id", clip(string(r.id), 64))
			met = append(met, f)
		}
	}
	return met
}

// triggers counts a request that a fault's filter holds for, and reports whether it is one that goes wrong.
func (s *Server) triggers(f *Fault) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	f.seen++
	if f.every > 0 && f.seen%f.every != 0 || f.first > 0 && f.seen > f.first {
		return false
	}
	return f.chance == 0 || s.chance.Float64() < f.chance
}

// refuseHTTP answers with a status of HTTP, if a fault says so. It reports whether it did.
func (r *responder) refuseHTTP() bool {
	for _, f := range r.faults {
		if f.act == actStatus && r.faultWriter != nil && r.faultWriter.writeStatus(f.n) {
			return true
		}
	}
	return false
}

// faultError returns the error that a fault answers with; nil if none does.
func (r *responder) faultError() *jsonrpc.Error {
	for _, f := range r.faults {
		if f.act == actError {
			return f.err
		}
	}
	return nil
}

// garbage is what no parser takes.
const garbage = `{"jsonrpc": garbage`

// injectFaults does to an answer what the faults say, in their order. The error says that there is none any more.
func (r *responder) injectFaults(answer []byte) ([]byte, error) {
	for _, f := range r.faults {
		switch f.act {
		case actID:
			r.swapID()
		case actDelay:
			if err := r.wait(f.delay); err != nil {
				return nil, err
			}
		case actDrop:
			r.waitDone()
			return nil, errEnded
		case actExit:
			r.conn.srv.stop(&ExitError{f.n})
			if r.faultWriter != nil {
				r.faultWriter.abort()
			}
			return nil, errEnded
		}
	}
	answer = r.withFaultID(answer)
	for _, f := range r.faults {
		switch f.act {
		case actGarbage:
			if !r.conn.stream {
				answer = append([]byte(garbage+" "), answer...)
				continue
			}
			_ = r.out.Send([]byte(garbage)) // a client that is gone has none
		case actStray:
			if r.conn.stream {
				_ = r.out.Send([]byte(f.text)) // likewise
			}
		case actDuplicate:
			answer = r.duplicate(answer)
		case actTruncate:
			answer = r.truncate(answer, f.n)
		}
	}
	return answer, nil
}

// duplicate has an answer be there twice: as two messages where that can be.
func (r *responder) duplicate(answer []byte) []byte {
	if r.noPreceding {
		return append(append(answer, ' '), answer...)
	}
	_ = r.out.Send(answer) // a client that is gone has none
	return answer
}

// truncate leaves n bytes of an answer, below 0 half of it. Over HTTP the connection breaks there.
func (r *responder) truncate(answer []byte, n int) []byte {
	if n < 0 {
		n = len(answer) / 2
	}
	if r.faultWriter != nil {
		r.faultWriter.abortAfter(n)
		return answer
	}
	return answer[:min(n, len(answer))]
}

// swapID gives an answer the id of another request that is under way, which gets this one's; if there is none, a number becomes a string, and a string another one.
func (r *responder) swapID() {
	p := r.conn
	p.mu.Lock()
	defer p.mu.Unlock()
	if r.swappedID != nil {
		return // another has done it
	}
	for b := range p.responders {
		if b != r && b.swappedID == nil && !b.id.Equal(r.id) {
			r.swappedID, b.swappedID = b.id, r.id
			return
		}
	}
	if text, isString := r.id.Text(); isString {
		r.swappedID = jsonrpc.StringID(text + "~")
	} else {
		r.swappedID = jsonrpc.StringID(string(r.id))
	}
}

// withFaultID gives an answer the id that it has by a fault, this request's own or another's.
func (r *responder) withFaultID(answer []byte) []byte {
	r.conn.mu.Lock()
	id := r.swappedID
	r.conn.mu.Unlock()
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
