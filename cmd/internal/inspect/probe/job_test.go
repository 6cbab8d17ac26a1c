package probe

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"mcpwire/capture"
	"mcpwire/check"
	"mcpwire/cmd/internal/trace/wireclient"
	"mcpwire/jsonrpc"
	"mcpwire/mcp"
)

// A processGroup runs the processes of a fake server, which may affect each other.
type processGroup struct {
	t *testing.T
	// prepare is called when a process starts, with its number, from 1. It may be nil.
	prepare func(n int, p *groupProcess) flaw

	mu      sync.Mutex
	started int
	running []*groupProcess
	most    int // largest number of concurrent processes
}

// A groupProcess is a process in a processGroup.
type groupProcess struct {
	*fakeProcess
	g      *processGroup
	n      int
	stderr io.Writer
	ending chan struct{} // closed when Close is called
	gone   chan struct{} // closed when Close has returned
	once   sync.Once
}

func (g *processGroup) start(_ context.Context, stderr io.Writer) (wireclient.Child, error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.started++
	p := &groupProcess{g: g, n: g.started, stderr: stderr, ending: make(chan struct{}), gone: make(chan struct{})}
	f := flaw{}
	if g.prepare != nil {
		f = g.prepare(p.n, p)
	}
	p.fakeProcess = startFake(newServer(g.t), f)
	g.running = append(g.running, p)
	g.most = max(g.most, len(g.running))
	return p, nil
}

func (p *groupProcess) Close() error {
	p.once.Do(func() {
		close(p.ending)
		_ = p.fakeProcess.Close() // as below
		p.g.mu.Lock()
		defer p.g.mu.Unlock()
		p.g.running = slices.DeleteFunc(p.g.running, func(o *groupProcess) bool { return o == p })
		close(p.gone)
	})
	return p.Wait()
}

func (g *processGroup) counts() (started, running, most int) {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.started, len(g.running), g.most
}

// run returns a run on processes of the group.
func (g *processGroup) run(opts *Options) *run {
	r := newRun(&Target{Command: []string{"fake"}}, opts)
	r.start = g.start
	return r
}

// blocked delays the handling of a line until a channel is closed.
func (p *groupProcess) blocked(until <-chan struct{}) flaw {
	return flaw{in: func(*jsonrpc.Message, string) ([]string, bool) {
		select {
		case <-until:
		case <-p.ending:
		}
		return nil, false
	}}
}

// reportOf probes the processes of the group, one after the other if alone is set.
func (g *processGroup) reportOf(t *testing.T, alone bool, opts *Options) *Report {
	t.Helper()
	r := g.run(opts)
	r.plan.serial = alone
	if err := r.probeAll(t.Context()); err != nil {
		t.Fatal(err)
	}
	if _, running, _ := g.counts(); running != 0 {
		t.Errorf("%d processes still run", running)
	}
	return r.report()
}

// TestConcurrentJobs shows that processes run concurrently, up to the limit. These respond only
// when that many are connected; only the first may run alone.
func TestConcurrentJobs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		together := make(chan struct{})
		g := &processGroup{t: t}
		g.prepare = func(n int, p *groupProcess) flaw {
			if n == 1 {
				return flaw{}
			}
			if len(g.running)+1 == maxProcesses {
				select {
				case <-together:
				default:
					close(together)
				}
			}
			return p.blocked(together)
		}
		report := g.reportOf(t, false, nil)
		if len(report.Findings) > 0 {
			t.Errorf("findings:%s", verbose(report.Findings))
		}
		if diff := cmp.Diff(mcp.Revisions(), report.Revisions); diff != "" {
			t.Errorf("revisions (-want +got):\n%s", diff)
		}
		if _, _, most := g.counts(); most != maxProcesses {
			t.Errorf("%d processes ran at the same time, want %d", most, maxProcesses)
		}
	})
}

// TestProcesses counts the processes that a probe starts, which take most of its time.
func TestProcesses(t *testing.T) {
	for _, tt := range []struct {
		name string
		in   fault
		opts Options
		want int
	}{
		// One for each revision, one without a handshake. server/discover is sent to the first.
		{"legacy", speaks(legacy...), Options{}, 5},
		// SIGTERM needs another process.
		{"one legacy revision", speaks(rev20251125), Options{}, 6},
		// In addition to those of the legacy era: one for the revision, and two that are ended in
		// different ways.
		{"both eras", nil, Options{}, 8},
		{"modern", nil, Options{Revisions: modern}, 3},
		{"handshakes only", speaks(legacy...), Options{HandshakesOnly: true}, 4},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				g := &processGroup{t: t, prepare: func(int, *groupProcess) flaw { return flaw{in: tt.in, start: time.Second} }}
				begun := time.Now()
				report := g.reportOf(t, false, &tt.opts)
				if got := severities(report.Findings); len(got) > 0 {
					t.Errorf("findings: %v", got)
				}
				if started, _, _ := g.counts(); started != tt.want {
					t.Errorf("%d processes started, want %d", started, tt.want)
				}
				if d := time.Since(begun); d > 6*time.Second {
					t.Errorf("it took %v, want at most 6s", d)
				}
			})
		})
	}
}

// TestHandshakes shows which handshakes a caller is notified of, and when.
func TestHandshakes(t *testing.T) {
	for _, tt := range []struct {
		name string
		flaw flaw
		goOn bool
		want []string
	}{
		{"legacy", flaw{in: speaks(legacy...), start: time.Second}, true, []string{
			"2026-07-28 refused 1s", "2025-11-25 agreed 1s", "2025-06-18 agreed 1s", "2025-03-26 agreed 1s", "2024-11-05 agreed 1s", "opened",
		}},
		{"both eras", flaw{}, true, []string{
			"2026-07-28 agreed 0s", "2025-11-25 agreed 0s", "2025-06-18 agreed 0s", "2025-03-26 agreed 0s", "2024-11-05 agreed 0s", "opened",
		}},
		{"silent", flaw{in: lines(func(string) bool { return true })}, true, []string{"2026-07-28 silent 30s", "2025-11-25 silent 10s"}},
		{"probe is abandoned", flaw{in: speaks(legacy...)}, false, []string{"2026-07-28 refused 0s"}},
		{"server exits", flaw{in: lines(func(string) bool { return true }, die)}, false, []string{"2026-07-28 ended 0s"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var got []string
				g := &processGroup{t: t, prepare: func(int, *groupProcess) flaw { return tt.flaw }}
				r := g.run(&Options{
					Handshake: func(o *Observation) bool {
						got = append(got, fmt.Sprintf("%v %s %v", o.Revision, o.Outcome, o.Took))
						return tt.goOn
					},
					Opened: func() { got = append(got, "opened") },
				})
				err := r.probeAll(t.Context())
				if failed := errors.Is(err, ErrNoAnswer); failed != (len(got) < 6) || err != nil && !failed {
					t.Errorf("error %v", err)
				}
				if diff := cmp.Diff(tt.want, got); diff != "" {
					t.Errorf("handshakes (-want +got):\n%s", diff)
				}
				if _, running, _ := g.counts(); running != 0 {
					t.Errorf("%d processes still run", running)
				}
			})
		})
	}
}

// TestConcurrentJobsSameFindings shows that the findings about a server do not depend on whether
// its processes run concurrently, including the numbers of events and sessions.
func TestConcurrentJobsSameFindings(t *testing.T) {
	unknown := when(noSuchMethod, "", with(""))
	for _, tt := range []struct {
		name string
		flaw flaw
		// racy marks cases in which the order of a session's events varies even without
		// concurrency: events and their numbers are not compared.
		racy bool
	}{
		{"clean", flaw{}, false},
		{"legacy only", flaw{in: both(speaks(rev20251125), unknown)}, false},
		{"the oldest only", flaw{in: both(speaks(rev20241105), unknown)}, false},
		{"all revisions", flaw{in: unknown}, false},
		{"ends on invalid input", flaw{in: lines(notJSON, die)}, true},
		{"ends on a method", flaw{in: when(noSuchMethod, "", exitInRequest)}, true},
		{"silent", flaw{in: when(noSuchMethod, "", mute)}, false},
		{"deaf", flaw{deaf: true}, false},
		{"failing lists", flaw{in: when(mcp.MethodToolsList, "", code("-32603"))}, false},
		{"no response to server/discover", flaw{in: modernMute()}, false},
		{"lines that are not messages", flaw{out: func(line string) string { return "hello\n" + line }}, true},
		{"two libraries", flaw{in: twoLibraries()}, false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				tt.flaw.start = time.Second
				want := (&processGroup{t: t, prepare: func(int, *groupProcess) flaw { return tt.flaw }}).reportOf(t, true, nil)
				g := &processGroup{t: t, prepare: func(int, *groupProcess) flaw { return tt.flaw }}
				got := g.reportOf(t, false, nil)
				if _, _, most := g.counts(); most < 2 {
					t.Error("no processes ran concurrently")
				}
				if diff := cmp.Diff(list(want.Findings, tt.racy), list(got.Findings, tt.racy)); diff != "" {
					t.Errorf("findings (-alone +beside):\n%s", diff)
				}
				if diff := cmp.Diff(want.Revisions, got.Revisions); diff != "" || want.Events != got.Events && !tt.racy {
					t.Errorf("revisions (-alone +beside):\n%s%d events alone, %d beside", diff, want.Events, got.Events)
				}
			})
		})
	}
}

// list formats findings with everything that a report prints; if racy, without values that depend
// on the order of events in a session.
func list(findings []check.Finding, racy bool) []string {
	var lines []string
	for _, f := range findings {
		line := fmt.Sprintf("%s %v, session %d, %v, %s", f.Rule.ID, f.Rule.Severity, f.Session, f.Revision, f.SDK)
		if !racy {
			line += fmt.Sprintf(", event %d, %s, id %s, related %v: %s", f.Event, f.Dir, f.ID, f.Related, f.Message)
		}
		lines = append(lines, line)
	}
	return lines
}

// TestDisturbed shows that the processes of a server run one after the other if they affect each
// other, and that this causes no findings.
func TestDisturbed(t *testing.T) {
	for _, tt := range []struct {
		name    string
		prepare func(g *processGroup) func(int, *groupProcess) flaw
	}{
		{"ends if another process runs", func(g *processGroup) func(int, *groupProcess) flaw {
			return func(int, *groupProcess) flaw {
				if len(g.running) > 0 {
					return flaw{in: lines(func(string) bool { return true }, die)}
				}
				return flaw{}
			}
		}},
		{"ends the other processes", func(g *processGroup) func(int, *groupProcess) flaw {
			return func(int, *groupProcess) flaw {
				for _, o := range g.running {
					o.end(1)
				}
				return flaw{}
			}
		}},
		{"waits for the other processes", func(g *processGroup) func(int, *groupProcess) flaw {
			return func(_ int, p *groupProcess) flaw {
				if len(g.running) == 0 {
					return flaw{}
				}
				return p.blocked(g.running[0].gone)
			}
		}},
		{"ends early if another process runs", func(g *processGroup) func(int, *groupProcess) flaw {
			return func(n int, p *groupProcess) flaw {
				if len(g.running) == 0 {
					return flaw{}
				}
				if n%2 == 0 {
					return flaw{start: time.Second}
				}
				time.AfterFunc(time.Second/2, func() { p.end(1) })
				return flaw{}
			}
		}},
		{"cannot list if another process runs", func(g *processGroup) func(int, *groupProcess) flaw {
			return func(int, *groupProcess) flaw {
				if len(g.running) > 0 {
					return flaw{in: when(mcp.MethodToolsList, "", code("-32603"))}
				}
				return flaw{}
			}
		}},
		{"ends slowly if another process runs", func(g *processGroup) func(int, *groupProcess) flaw {
			return func(int, *groupProcess) flaw { return flaw{deaf: len(g.running) > 0} }
		}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				opts := Options{Revisions: []mcp.Revision{rev20251125, rev20260728}}
				want := (&processGroup{t: t}).reportOf(t, true, &opts)
				g := &processGroup{t: t}
				g.prepare = tt.prepare(g)
				got := g.reportOf(t, false, &opts)
				if _, _, most := g.counts(); most < 2 {
					t.Error("no processes ran concurrently")
				}
				if len(got.Findings) > 0 {
					t.Errorf("findings:%s", verbose(got.Findings))
				}
				if diff := cmp.Diff(want.Revisions, got.Revisions); diff != "" || want.Events != got.Events {
					t.Errorf("revisions (-want +got):\n%s%d events, want %d", diff, got.Events, want.Events)
				}
			})
		})
	}
}

// TestTwoLibraries shows that the findings about a server whose responses come from two libraries
// name the library of the first response.
func TestTwoLibraries(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := &processGroup{t: t, prepare: func(int, *groupProcess) flaw { return flaw{in: twoLibraries()} }}
		report := g.reportOf(t, false, &Options{Revisions: []mcp.Revision{rev20251125, rev20260728}})
		var got []string
		for _, f := range report.Findings {
			if f.SDK != "" {
				got = append(got, f.SDK)
			}
		}
		slices.Sort(got)
		if diff := cmp.Diff([]string{"Python SDK"}, slices.Compact(got)); diff != "" {
			t.Errorf("libraries (-want +got):\n%s%s", diff, verbose(report.Findings))
		}
	})
}

// twoLibraries responds to unknown methods like the Python SDK, and to resources/read like the
// TypeScript SDK.
func twoLibraries() fault {
	return both(
		when(noSuchMethod, "", func(m *jsonrpc.Message) []string {
			return []string{`{"jsonrpc":"2.0","id":` + string(m.ID) + `,"error":{"code":-32602,"message":"Invalid request parameters"}}`}
		}),
		when(mcp.MethodResourcesRead, "", func(m *jsonrpc.Message) []string {
			return []string{`{"jsonrpc":"2.0","id":` + string(m.ID) + `,"error":{"code":-32603,"message":"MCP error -32603"}}`}
		}),
	)
}

// TestConcurrentUnsupportedRevision shows that the other revisions are still probed if one turns
// out to be unsupported.
func TestConcurrentUnsupportedRevision(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := &processGroup{t: t, prepare: func(int, *groupProcess) flaw { return flaw{in: speaks(rev20251125)} }}
		report := g.reportOf(t, false, nil)
		if diff := cmp.Diff([]mcp.Revision{rev20251125}, report.Revisions); diff != "" {
			t.Errorf("revisions (-want +got):\n%s", diff)
		}
	})
}

// TestShownInOrder shows that the output about concurrent jobs, including their standard error, is
// in the order of the jobs.
func TestShownInOrder(t *testing.T) {
	shown := func(t *testing.T) string {
		var mu sync.Mutex
		var out bytes.Buffer
		say := func(text string) {
			mu.Lock()
			defer mu.Unlock()
			out.WriteString(text)
		}
		g := &processGroup{t: t}
		g.prepare = func(n int, p *groupProcess) flaw {
			// The later ones print first.
			time.AfterFunc(time.Second-time.Duration(n)*time.Millisecond, func() { _, _ = p.stderr.Write([]byte("up\n")) })
			return flaw{start: time.Second}
		}
		g.reportOf(t, false, &Options{Stderr: writerFunc(say), Progress: func(s Step) { say(s.Text + "\n") }, Revisions: []mcp.Revision{rev20251125, rev20260728}})
		return out.String()
	}
	synctest.Test(t, func(t *testing.T) {
		const want = `2026-07-28: handshake
up
2025-11-25: handshake
up
2026-07-28: lists and requests
2026-07-28: invalid lines
up
2026-07-28: SIGTERM
up
2025-11-25: lists and requests
2025-11-25: before the handshake, and invalid lines
up
2025-11-25: SIGTERM
up
`
		got := shown(t)
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("shown (-want +got):\n%s", diff)
		}
		if again := shown(t); again != got {
			t.Errorf("shown the second time:\n%s\nthe first time:\n%s", again, got)
		}
	})
}

type writerFunc func(string)

func (f writerFunc) Write(b []byte) (int, error) {
	f(string(b))
	return len(b), nil
}

func TestRelay(t *testing.T) {
	var out bytes.Buffer
	r := &stderrForwarder{w: &out}
	big := bytes.Repeat([]byte("x"), maxBuffered)
	r.write(big)
	r.write([]byte("more"))
	if out.Len() > 0 || len(r.buffered) != maxBuffered {
		t.Errorf("%d bytes passed and %d held, want 0 and %d", out.Len(), len(r.buffered), maxBuffered)
	}
	r.release()
	r.write([]byte("behind"))
	r.release()
	if got, want := out.String(), string(big)+"\n…\nbehind"; got != want {
		t.Errorf("%d bytes passed, want %d", len(got), len(want))
	}
	(*stderrForwarder)(nil).write(big)
	(*stderrForwarder)(nil).release()
}

// TestConcurrentJobsCanceled shows that no process remains when the context ends, whatever the
// processes do.
func TestConcurrentJobsCanceled(t *testing.T) {
	for _, tt := range []struct {
		name string
		in   func(n int) fault
	}{
		{"while they start", func(n int) fault {
			if n == 1 {
				return nil
			}
			return lines(func(string) bool { return true })
		}},
		{"in the steps", func(n int) fault {
			if n == 1 {
				return nil
			}
			return when(mcp.MethodToolsList, "", mute)
		}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
				defer cancel()
				g := &processGroup{t: t, prepare: func(n int, _ *groupProcess) flaw { return flaw{in: tt.in(n)} }}
				r := g.run(nil)
				begun := time.Now()
				if err := r.probeAll(ctx); !errors.Is(err, context.DeadlineExceeded) {
					t.Errorf("error %v, want that of the context", err)
				}
				if d := time.Since(begun); d > 6*time.Second {
					t.Errorf("the end took %v", d-5*time.Second)
				}
				started, running, most := g.counts()
				if running != 0 || most != maxProcesses {
					t.Errorf("%d of %d processes still run, %d ran at the same time", running, started, most)
				}
				if report := r.report(); len(report.Findings) > 0 {
					t.Errorf("findings:%s", verbose(report.Findings))
				}
			})
		})
	}
}

// TestCanceledWithoutFindings shows that the end of the context causes no findings.
func TestCanceledWithoutFindings(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
		defer cancel()
		// A batch, which need not get a response, comes before the first ping.
		g := &processGroup{t: t, prepare: func(int, *groupProcess) flaw { return flaw{in: when(mcp.MethodPing, "", mute)} }}
		r := g.run(&Options{Revisions: []mcp.Revision{rev20251125}})
		if err := r.probeAll(ctx); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("error %v, want that of the context", err)
		}
		if report := r.report(); len(report.Findings) > 0 {
			t.Errorf("findings:%s", verbose(report.Findings))
		}
	})
}

// TestConcurrentJobsRecorded shows that in a capture each session is one process from its start to
// its end, and that findings refer to the right events.
func TestConcurrentJobsRecorded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := flaw{start: time.Second, in: when(noSuchMethod, "", with(""))}
		var file bytes.Buffer
		w := capture.NewWriter(&file, &capture.Options{Transport: "stdio", Redact: &capture.Redaction{Off: true}})
		report := (&processGroup{t: t, prepare: func(int, *groupProcess) flaw { return f }}).reportOf(t, false, &Options{Capture: w})
		if err := w.Close(); err != nil {
			t.Fatal(err)
		}
		events := map[uint64]*capture.Event{}
		sessions := map[uint64][]*capture.Event{}
		overlap := 0
		open := map[uint64]bool{}
		for e, err := range capture.NewReader(&file, nil).Events() {
			if err != nil {
				t.Fatal(err)
			}
			if e.Session == 0 {
				continue
			}
			c := *e
			c.Data = bytes.Clone(e.Data) // the Reader reuses it
			events[e.N] = &c
			sessions[e.Session] = append(sessions[e.Session], &c)
			open[e.Session] = e.Kind != capture.KindExit
			if e.Kind == capture.KindExit {
				delete(open, e.Session)
			}
			overlap = max(overlap, len(open))
		}
		if overlap < maxProcesses {
			t.Errorf("%d sessions were open at the same time, want at least %d", overlap, maxProcesses)
		}
		for n, list := range sessions {
			starts := 0
			for _, e := range list {
				if e.Kind == capture.KindStart {
					starts++
				}
			}
			if last := list[len(list)-1]; starts != 1 || list[0].Kind != capture.KindStart || last.Kind != capture.KindExit {
				t.Errorf("session %d has %d starts, and goes from %s to %s", n, starts, list[0].Kind, last.Kind)
			}
		}
		if len(report.Findings) != len(mcp.Revisions()) {
			t.Errorf("%d findings, want one for each revision:%s", len(report.Findings), verbose(report.Findings))
		}
		place := -1
		for _, f := range report.Findings {
			e := events[f.Event]
			if e == nil || e.Session != f.Session || !strings.Contains(string(e.Data), `"result"`) {
				t.Errorf("%s is found at event %d of session %d, which is %+v", f.Rule.ID, f.Event, f.Session, e)
			}
			i := slices.Index(mcp.Revisions(), f.Revision)
			if place >= 0 && i != place-1 {
				t.Errorf("findings of %v are out of order", f.Revision)
			}
			place = i
		}
	})
}
