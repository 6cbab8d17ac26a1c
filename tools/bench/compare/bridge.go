//go:build linux

package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

// A transport is what messages go by.
type transport string

const (
	onStdio transport = "stdio"
	onHTTP  transport = "HTTP"
	onOld   transport = "HTTP+SSE" // the transport of 2024-11-05
)

// A way is what a bridge connects: the client's transport and the server's.
type way struct{ downstream, upstream transport }

var ways = []way{{onStdio, onHTTP}, {onHTTP, onStdio}, {onStdio, onOld}, {onOld, onStdio}}

func (w way) String() string {
	return fmt.Sprintf("client on %s, server on %s", w.downstream, w.upstream)
}

// A crossing is the eras of the client and of the server, which speaks no other.
type crossing struct{ client, server era }

func (c crossing) String() string {
	if c.client.name == c.server.name {
		return c.client.name
	}
	return c.client.name + " to " + c.server.name
}

// crossings returns those of a way. The transport of 2024-11-05 is of the legacy era.
func crossings(w way) (all []crossing) {
	if w.downstream == onOld || w.upstream == onOld {
		return []crossing{{eras[0], eras[0]}}
	}
	for _, e := range eras {
		all = append(all, crossing{e, e})
	}
	return append(all, crossing{eras[0], eras[1]}, crossing{eras[1], eras[0]})
}

const (
	unbridged = "no bridge"
	manyCalls = 16
)

// bridgeTexts are how long the texts of calls are. The second is 100 kB and not KiB, since one of
// the bridges takes requests of 100 KiB at most.
var bridgeTexts = []int{1 << 10, 100_000}

// measureBridges has a client call a server through bridges, and without one.
func measureBridges(r *run) ([]table, error) {
	p, err := r.prepareBridges()
	if err != nil {
		return nil, err
	}
	var tables []table
	for _, w := range ways {
		var measured []*crossed
		for _, c := range crossings(w) {
			m := &crossed{crossing: c}
			for _, window := range []int{1, manyCalls} {
				err := place(r.pin && window == 1, func() error { return p.measure(w, m, window) })
				if err != nil {
					return nil, fmt.Errorf("%s, %s: %w", w, c, err)
				}
			}
			measured = append(measured, m)
		}
		for i, text := range bridgeTexts {
			tables = append(tables, bridgeTable(fmt.Sprintf("%s, texts of %d bytes", w, text), measured, i))
		}
	}
	return tables, nil
}

// A bridgeEnd has the programs that take part in a bridge benchmark.
type bridgeEnd struct {
	*run
	server, web string // the servers' binaries
	bridge      string // ours
	packages    string // folder of the others, "" if they are not there
	names       []string
	oldPath     string // where subjects over HTTP+SSE have their stream; empty means oldPath
	proxy       string // the binary of rawproxy
	// configure writes the configuration of a subject that listens at the address. It may be nil.
	configure func(addr string) error
}

func (r *run) prepareBridges() (*bridgeEnd, error) {
	p := &bridgeEnd{run: r}
	var err, webErr, bridgeErr error
	if p.names, err = r.chosen(); err != nil {
		return nil, err
	}
	p.server, err = r.compile("./server")
	p.web, webErr = r.compile("./httpserver")
	p.bridge, bridgeErr = r.compileIn("../..", "./cmd/mcpwire")
	if err := errors.Join(err, webErr, bridgeErr); err != nil {
		return nil, err
	}
	// What they remember of servers is not the user's.
	for _, name := range []string{"MCPWIRE_HOME", "MCP_REMOTE_CONFIG_DIR"} {
		if err := os.Setenv(name, filepath.Join(r.dir, strings.ToLower(name))); err != nil {
			return nil, err
		}
	}
	others := slices.ContainsFunc(bridges[1:], func(b bridge) bool { return slices.Contains(p.names, b.name) })
	if p.packages, err = npmFolder("bridges"); err != nil && others {
		fmt.Fprintln(os.Stderr, "compare: only mcpwire's bridge is measured:", err)
	}
	return p, nil
}

// measure starts what takes part in a crossing, and loads it in turn, with texts of all lengths.
func (p *bridgeEnd) measure(w way, m *crossed, window int) error {
	subjects, done, err := p.start(w, m.crossing)
	defer done()
	if err != nil {
		return err
	}
	if m.names == nil {
		for _, s := range subjects {
			m.names = append(m.names, s.name)
		}
	}
	for _, length := range bridgeTexts {
		text := strings.Repeat("x", length)
		for _, s := range subjects {
			if err := s.check(s.prepare(window, text, p.block)); err != nil {
				return err
			}
		}
		samples, err := p.interleave(len(subjects), func(who int) (sample, error) {
			s := subjects[who]
			if s.failed != nil {
				return sample{}, nil
			}
			taken, err := s.load(window, p.block)
			return taken, s.check(err)
		})
		if err != nil {
			return err
		}
		failed := make([]bool, len(subjects))
		for i, s := range subjects {
			failed[i] = s.failed != nil
		}
		m.took = append(m.took, taken{window, samples, failed})
	}
	return nil
}

// check returns the error of a program of ours. It records the error of another bridge, which takes
// no further part.
func (s *subject) check(err error) error {
	if err == nil || s.failed != nil {
		return nil
	}
	err = fmt.Errorf("%s: %w%s", s.name, err, s.lastWords())
	if s.pid == 0 || s.name == ours {
		return err
	}
	fmt.Fprintln(os.Stderr, "compare:", err)
	s.failed = err
	return nil
}

// start starts the server, and connects to it without a bridge and through each that can. The third
// subject is the same server on the client's transport.
func (p *bridgeEnd) start(w way, c crossing) (subjects []*subject, done func(), err error) {
	var ends []func() error
	done = func() {
		for i := len(ends) - 1; i >= 0; i-- {
			ends[i]()
		}
	}
	site, err := startSite(peer{name: "the server", path: p.web, args: []string{"-era", c.server.name}})
	if err != nil {
		return nil, done, err
	}
	ends = append(ends, site.close)
	upstream := map[transport][]string{onHTTP: {site.url()}, onStdio: {p.server, "-era", c.server.name}}
	if w.downstream == onOld || w.upstream == onOld {
		old, err := startSite(peer{name: "the server", path: p.web, args: []string{"-era", c.server.name, "-old"}})
		if err != nil {
			return nil, done, err
		}
		ends = append(ends, old.close)
		upstream[onOld] = []string{"http://" + old.addr + oldPath}
	}
	add := func(name string, w way, e era, command []string) error {
		s, err := p.connect(name, w, e, command)
		if s == nil {
			return err
		}
		subjects, ends = append(subjects, s), append(ends, s.close)
		return s.check(err)
	}
	err = errors.Join(
		add(unbridged, way{w.upstream, w.upstream}, c.server, upstream[w.upstream]),
		add(unbridged+", on "+string(w.downstream), way{w.downstream, w.downstream}, c.server, upstream[w.downstream]),
	)
	for _, b := range bridges {
		command := b.command(p, w, c, upstream[w.upstream])
		if command != nil && err == nil && slices.Contains(p.names, b.name) {
			if err = add(b.name, w, c.client, command); err == nil {
				subjects[len(subjects)-1].slow = b.script != ""
			}
		}
	}
	return subjects, done, err
}

// timedOut returns err, joined with an error if a program took too long.
func timedOut(took *time.Timer, err error) error {
	if !took.Stop() {
		return errors.Join(errors.New("no response in time"), err)
	}
	return err
}
