package probe

import (
	"context"
	"errors"
	"io"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"mcpwire/cmd/internal/trace/wireclient"
	"mcpwire/jsonrpc"
	"mcpwire/mcp"
)

// modernMute never responds to requests of the modern era.
func modernMute() fault {
	return modernOnly(func(*jsonrpc.Message, string) ([]string, bool) { return nil, true })
}

// TestSlowStart shows that the probe waits for a slow server as long as the options say, in every
// revision.
func TestSlowStart(t *testing.T) {
	for _, tt := range []struct {
		name   string
		flaw   flaw
		opts   Options
		speaks []mcp.Revision // nil for an error
	}{
		{"12 s", flaw{start: 12 * time.Second}, Options{}, mcp.Revisions()},
		{"29 s", flaw{start: 29 * time.Second}, Options{}, mcp.Revisions()},
		{"31 s", flaw{start: 31 * time.Second}, Options{}, nil},
		{"31 s, and a minute", flaw{start: 31 * time.Second}, Options{Connect: time.Minute}, mcp.Revisions()},
		{"12 s, and 10 s for responses", flaw{start: 12 * time.Second}, Options{Timeout: 10 * time.Second}, mcp.Revisions()},
		{"12 s, and 10 s", flaw{start: 12 * time.Second}, Options{Connect: 10 * time.Second}, nil},
		{"12 s, and no response to server/discover", flaw{start: 12 * time.Second, in: modernMute()}, Options{}, legacy},
		{"no response to server/discover", flaw{in: modernMute()}, Options{}, legacy},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				report, err := probeFake(t, tt.flaw, &tt.opts)
				if tt.speaks == nil {
					if !errors.Is(err, ErrNoAnswer) || !strings.Contains(err.Error(), "slow") {
						t.Errorf("error %v, want an ErrNoAnswer with the word slow", err)
					}
					if got := brief(report.Findings); !slices.Contains(got, "probe/no-handshake") {
						t.Errorf("findings %v, want probe/no-handshake", got)
					}
					return
				}
				if err != nil {
					t.Fatal(err)
				}
				if diff := cmp.Diff(tt.speaks, report.Revisions); diff != "" {
					t.Errorf("revisions (-want +got):\n%s", diff)
				}
				if got := brief(report.Findings); len(got) > 0 {
					t.Errorf("findings: %s", verbose(report.Findings))
				}
			})
		})
	}
}

// TestObserveSlow checks that the probe's own handshake waits for a slow server, and distinguishes
// silence from a slow start.
func TestObserveSlow(t *testing.T) {
	for _, tt := range []struct {
		name  string
		flaw  flaw
		rev   mcp.Revision
		want  Outcome
		alive bool
		most  time.Duration
	}{
		{"modern", flaw{}, rev20260728, Negotiated, false, time.Second},
		{"modern, 20 s", flaw{start: 20 * time.Second}, rev20260728, Negotiated, false, 21 * time.Second},
		{"legacy, 20 s", flaw{start: 20 * time.Second}, rev20251125, Negotiated, false, 21 * time.Second},
		{"legacy only", flaw{in: modernMute()}, rev20260728, Silent, true, 6 * time.Second},
		{"legacy only, 20 s", flaw{start: 20 * time.Second, in: modernMute()}, rev20260728, Silent, true, 21 * time.Second},
		{"silent", flaw{start: time.Hour}, rev20260728, Silent, false, 33 * time.Second},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var o *Observation
				r := fakeRun(t, tt.flaw, &Options{Revisions: []mcp.Revision{tt.rev}, HandshakesOnly: true, Handshake: func(got *Observation) bool {
					o = got
					return true
				}})
				if err := r.probeAll(t.Context()); err != nil && !errors.Is(err, ErrNoAnswer) {
					t.Fatal(err)
				}
				if o.Outcome != tt.want || o.Alive != tt.alive {
					t.Errorf("outcome %v, alive %v, want %v, %v", o.Outcome, o.Alive, tt.want, tt.alive)
				}
				if o.Took > tt.most {
					t.Errorf("it took %v, want at most %v", o.Took, tt.most)
				}
			})
		})
	}
}

// TestDisturbedByDiscover checks that a server that responds to nothing after server/discover is probed on,
// well before the end of the wait.
func TestDisturbedByDiscover(t *testing.T) {
	disturbed := func(m *jsonrpc.Message, _ string) ([]string, bool) {
		return nil, string(m.Method) == mcp.MethodDiscover || string(m.Method) == mcp.MethodInitialize && string(m.ID) == "2"
	}
	synctest.Test(t, func(t *testing.T) {
		var list []Observation
		r := fakeRun(t, flaw{in: disturbed}, &Options{HandshakesOnly: true, Revisions: []mcp.Revision{rev20251125, rev20260728}, Handshake: func(o *Observation) bool {
			list = append(list, *o)
			return true
		}})
		if err := r.probeAll(t.Context()); err != nil {
			t.Fatal(err)
		}
		if o := list[0]; o.Outcome != Silent || !o.Disturbed || o.Took > 11*time.Second {
			t.Errorf("modern: outcome %v, disturbed %v, in %v", o.Outcome, o.Disturbed, o.Took)
		}
		if o := list[1]; o.Outcome != Negotiated || o.Disturbed {
			t.Errorf("legacy: outcome %v, disturbed %v", o.Outcome, o.Disturbed)
		}
		if diff := cmp.Diff([]string{"probe/unanswered"}, brief(r.report().Findings)); diff != "" {
			t.Errorf("rules (-want +got):\n%s", diff)
		}
	})
}

// fakeRun returns a run on in-memory servers.
func fakeRun(t *testing.T, f flaw, opts *Options) *run {
	r := newRun(&Target{Command: []string{"fake"}}, opts)
	r.start = func(context.Context, io.Writer) (wireclient.Child, error) { return startFake(newServer(t), f), nil }
	return r
}
