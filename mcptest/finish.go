package mcptest

import "fmt"

// finish is the end of a peer: the other side may finish what it has accepted, and nothing may come that nobody expected.
func (p *Peer) finish() {
	p.t.Helper()
	defer p.Close()
	w, ok := p.framer.(closeWriter)
	if p.closed || p.t.Failed() || !ok {
		return
	}
	if err := w.CloseWrite(); err != nil {
		p.t.Errorf("%send of output: %v", p.where, err)
		return
	}
	rest, err := p.rest()
	if err != nil {
		p.t.Error(p.report("%v", err))
		return
	}
	if len(rest) > 0 {
		p.t.Error(p.report("messages came that were not expected, %d of them; the last: %s", len(rest), clip(rest[len(rest)-1], maxShown)))
	}
}

// rest returns all that comes until the other side hangs up.
func (p *Peer) rest() (messages []string, err error) {
	for {
		switch a, ok := p.next(p.Timeout); {
		case !ok:
			return messages, fmt.Errorf("the other side has not hung up within %v of the end of its input", p.Timeout)
		case a.last():
			return messages, nil
		case a.err != nil:
			messages = append(messages, a.err.Error())
		default:
			messages = append(messages, a.text)
		}
	}
}
