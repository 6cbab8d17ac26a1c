package connect

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/spf13/pflag"
)

// TestBridgeLimits checks that server processes have a lower limit than sessions of a server that
// already runs, and that abandoned ones expire sooner.
func TestBridgeLimits(t *testing.T) {
	type limits struct {
		Servers, PerCaller, Clients, Backlog int
		Session, First, Most, Wait           time.Duration
		Remote                               bool
	}
	usual := limits{Clients: 1000, Backlog: 4096, Session: 30 * time.Minute, First: 200 * time.Millisecond, Most: 30 * time.Second, Wait: 10 * time.Second}
	change := func(f func(l *limits)) limits {
		l := usual
		f(&l)
		return l
	}
	for _, test := range []struct {
		name    string
		process bool
		args    []string
		want    limits
	}{
		{"a URL", false, nil, usual},
		{"a URL, for others", false, []string{"--listen", "127.0.0.1:0"}, change(func(l *limits) { l.Remote = true })},
		{"a command", true, nil, change(func(l *limits) { l.Servers, l.PerCaller, l.Session = 100, 32, 5*time.Minute })},
		{"a command, on TCP", true, []string{"--listen", "tcp:127.0.0.1:0"}, change(func(l *limits) {
			l.Servers, l.PerCaller, l.Session, l.Remote = 100, 32, 5*time.Minute, true
		})},
		{"a command, on a unix socket", true, []string{"--listen", "unix:/s"}, change(func(l *limits) { l.Servers, l.PerCaller, l.Session = 100, 32, 5*time.Minute })},
		{
			"all flags", true,
			[]string{
				"--max-processes", "7", "--max-processes-per-caller", "3", "--max-sessions", "9", "--max-backlog", "5", "--session-timeout", "1m",
				"--min-backoff", "1s", "--max-backoff", "2s", "--restart-wait", "0",
			},
			limits{Servers: 7, PerCaller: 3, Clients: 9, Backlog: 5, Session: time.Minute, First: time.Second, Most: 2 * time.Second, Wait: -1},
		},
	} {
		f := &bridgeFlags{}
		set := pflag.NewFlagSet("bridge", pflag.ContinueOnError)
		f.register(set)
		if err := set.Parse(test.args); err != nil {
			t.Fatalf("%s: %v", test.name, err)
		}
		if err := f.check(set.Changed); err != nil {
			t.Fatalf("%s: %v", test.name, err)
		}
		upstream := &upstreamTarget{process: test.process}
		o := f.options(upstream, nil)
		got := limits{o.MaxServers, o.MaxServersPerCaller, o.MaxSessions, o.MaxBacklog, f.sessionTime(upstream), o.MinBackoff, o.MaxBackoff, o.RestartWait, o.Remote}
		if diff := cmp.Diff(test.want, got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", test.name, diff)
		}
	}
}
