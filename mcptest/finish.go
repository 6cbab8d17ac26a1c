package mcptest

import "fmt"

// closeAndCheck is the end of a peer: the other side may finish what it has accepted, and nothing may come that nobody expected.
func (p *Peer) closeAndCheck() {
	p.t.Helper()
	defer p.Close()
	w, ok := p.framer.(closeWriter)
	if p.closed || p.t.Failed() || !ok {
		return
	}
	if err := w.CloseWrite(); err != nil {
		p.t.Errorf("%send of output: %v", p.location, err)
		return
	}
	rest, err := p.readRest()
	if err != nil {
		p.t.Error(p.failureText("%v", err))
		return
	}
	if len(rest) > 0 {
		p.t.Error(p.failureText("messages came that were not expected, %d of them; the last: %s", len(rest), clip(rest[len(rest)-1], maxShownBytes)))
	}
}

// readRest returns all that comes until the other side hangs up.
func (p *Peer) readRest() (messages []string, err error) {
	for {
		switch a, ok := p.next(p.Timeout); {
		case !ok:
			return messages, fmt.Errorf("the other side has not hung up within %v of the end of its input", p.Timeout)
		case a.isLast():
			return messages, nil
		case a.err != nil:
			messages = append(messages, a.err.Error())
		default:
			messages = append(messages, a.text)
		}
	}
}
