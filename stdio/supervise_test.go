package stdio

import (
	"context"
	"errors"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
)

// A fakeProcess runs until the test ends it.
type fakeProcess struct {
	pid    int
	done   chan struct{}
	end    sync.Once
	err    error
	closed int
}

func (p *fakeProcess) Pid() int              { return p.pid }
func (p *fakeProcess) Done() <-chan struct{} { return p.done }

func (p *fakeProcess) Wait() error {
	<-p.done
	return p.err
}

func (p *fakeProcess) Close() error {
	p.closed++
	p.die(nil)
	return p.err
}

func (p *fakeProcess) die(err error) {
	p.end.Do(func() {
		p.err = err
		close(p.done)
	})
}

// A fakeServer is what a supervisor starts again and again.
type fakeServer struct {
	script func(n int, p *fakeProcess) error // what the nth start (from 1) comes to
	starts []time.Duration                   // when, since the first
	begun  time.Time
	last   *fakeProcess
}

func (f *fakeServer) start(context.Context) (childProcess, error) {
	if f.begun.IsZero() {
		f.begun = time.Now()
	}
	f.starts = append(f.starts, time.Since(f.begun))
	f.last = &fakeProcess{pid: 100 + len(f.starts), done: make(chan struct{})}
	if err := f.script(len(f.starts), f.last); err != nil {
		return nil, err
	}
	return f.last, nil
}

func supervise(f *fakeServer, opts *SuperviseOptions) *Supervisor[int] {
	connect := func(_ context.Context, p childProcess) (int, error) { return p.Pid(), nil }
	return newSupervisor(f.start, connect, opts, func() float64 { return 0 })
}

var errCrash = errors.New("crash")

func TestSuperviseBacksOffAndGivesUp(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		f := &fakeServer{script: func(n int, p *fakeProcess) error {
			if n%2 == 0 {
				return errCrash
			}
			p.die(errCrash)
			return nil
		}}
		s := supervise(f, &SuperviseOptions{MinBackoff: time.Second, MaxBackoff: 5 * time.Second, MaxFailures: 6})
		defer s.Close()
		_, err := s.Conn(t.Context())
		for s.State().Phase != PhaseGaveUp { // Conn may see it running for a moment
			<-time.After(time.Second)
			_, err = s.Conn(t.Context())
		}
		var gaveUp *GaveUpError
		if !errors.As(err, &gaveUp) || gaveUp.Failures != 6 || !errors.Is(err, errCrash) {
			t.Errorf("Conn: %v", err)
		}
		want := []time.Duration{0, 1, 3, 7, 12, 17}
		for i := range want {
			want[i] *= time.Second
		}
		if diff := cmp.Diff(want, f.starts); diff != "" {
			t.Errorf("starts (-want +got)\n%s", diff)
		}
		state := s.State()
		if state.Starts != 6 || state.Failures != 6 || state.Pid != 0 || state.LastErr != errCrash {
			t.Errorf("state: %+v", state)
		}
		if _, err := s.Conn(t.Context()); !errors.As(err, &gaveUp) {
			t.Errorf("Conn, once it has given up: %v", err)
		}
	})
}

func TestSuperviseStablePeriodResets(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		f := &fakeServer{script: func(n int, p *fakeProcess) error {
			life := []time.Duration{0, 0, 0, 10 * time.Second, 9 * time.Second, 20 * time.Second}[min(n-1, 5)]
			if n == 7 {
				return nil // lives on
			}
			time.AfterFunc(life, func() { p.die(errCrash) })
			return nil
		}}
		s := supervise(f, &SuperviseOptions{MinBackoff: time.Second, StableAfter: 10 * time.Second, MaxFailures: 4})
		defer s.Close()
		<-time.After(time.Minute)
		synctest.Wait()
		// 0 +1 = 1, +2 = 3, +4 = 7, lives 10 and is stable, +1 = 18, lives 9, +1 = 28, lives 20, +1
		// = 49
		want := []time.Duration{0, 1, 3, 7, 18, 28, 49}
		for i := range want {
			want[i] *= time.Second
		}
		if diff := cmp.Diff(want, f.starts); diff != "" {
			t.Errorf("starts (-want +got)\n%s", diff)
		}
		state := s.State()
		if state.Phase != PhaseRunning || state.Pid != 107 || state.Failures != 0 {
			t.Errorf("state: %+v", state)
		}
	})
}

// TestSuperviseServed: a server that has answered has not failed, however soon it ends.
func TestSuperviseServed(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		supervisor := make(chan *Supervisor[int], 1)
		f := &fakeServer{script: func(n int, p *fakeProcess) error {
			if n == 20 {
				return nil // lives on
			}
			time.AfterFunc(time.Second, func() {
				s := <-supervisor
				if n != 2 && n != 3 { // which answer nothing
					s.Served()
					s.Served()
				}
				supervisor <- s
				p.die(errCrash)
			})
			return nil
		}}
		s := supervise(f, &SuperviseOptions{MinBackoff: time.Second, MaxFailures: 3})
		defer s.Close()
		supervisor <- s
		<-time.After(time.Minute)
		synctest.Wait()
		// each lives 1, and the next comes after 1, but after the second failure in a row after 2
		want := []time.Duration{0, 2, 4}
		for len(want) < 20 {
			next := want[len(want)-1] + 2
			if len(want) == 3 {
				next++
			}
			want = append(want, next)
		}
		for i := range want {
			want[i] *= time.Second
		}
		if diff := cmp.Diff(want, f.starts); diff != "" {
			t.Errorf("starts (-want +got)\n%s", diff)
		}
		if state := s.State(); state.Phase != PhaseRunning || state.Failures != 0 {
			t.Errorf("state: %+v", state)
		}
	})
}

func TestSuperviseConnWaits(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		f := &fakeServer{script: func(n int, p *fakeProcess) error {
			if n == 1 {
				return errCrash
			}
			return nil
		}}
		s := supervise(f, &SuperviseOptions{MinBackoff: time.Second})
		defer s.Close()
		begin := time.Now()
		ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond)
		defer cancel()
		<-time.After(time.Microsecond)
		if _, err := s.Conn(ctx); !errors.Is(err, context.DeadlineExceeded) || !errors.Is(err, errCrash) {
			t.Errorf("Conn with a short context: %v", err)
		}
		if got := s.State(); got.Phase != PhaseWaiting || !got.NextStart.Equal(begin.Add(time.Second)) {
			t.Errorf("state: %+v", got)
		}
		conn, err := s.Conn(t.Context())
		if conn != 102 || err != nil {
			t.Errorf("Conn: %d, %v", conn, err)
		}
		if d := time.Since(begin); d != time.Second {
			t.Errorf("Conn waited %v", d)
		}
		f.last.die(errCrash)
		synctest.Wait()
		if conn, err := s.Conn(t.Context()); conn != 103 || err != nil {
			t.Errorf("Conn after a crash: %d, %v", conn, err)
		}
	})
}

func TestSuperviseClose(t *testing.T) {
	t.Parallel()
	for _, wait := range []time.Duration{0, time.Millisecond, time.Second / 2} {
		synctest.Test(t, func(t *testing.T) {
			f := &fakeServer{script: func(n int, p *fakeProcess) error {
				time.AfterFunc(time.Second/4, func() { p.die(errCrash) })
				return nil
			}}
			s := supervise(f, &SuperviseOptions{MinBackoff: time.Minute})
			<-time.After(wait)
			waiting := make(chan error)
			go func() {
				for {
					if _, err := s.Conn(context.Background()); err != nil {
						waiting <- err
						return
					}
					<-time.After(time.Hour)
				}
			}()
			s.Close()
			s.Close()
			if err := <-waiting; err != ErrSupervisorClosed {
				t.Errorf("Conn: %v", err)
			}
			if got := s.State().Phase; got != PhaseClosed {
				t.Errorf("phase %v", got)
			}
			if f.last != nil && f.last.closed != 1 {
				t.Errorf("the process was closed %d times", f.last.closed)
			}
		})
	}
}

func TestSuperviseConnect(t *testing.T) {
	t.Parallel()
	errRefused := errors.New("refused")
	tests := []struct {
		name    string
		connect func(ctx context.Context, p *fakeProcess) error
		want    []string // in the error
		is      []error
	}{
		{"fails", func(context.Context, *fakeProcess) error { return errRefused }, []string{"connect: refused"}, []error{errRefused}},
		{"process dies", func(ctx context.Context, p *fakeProcess) error {
			time.AfterFunc(time.Second, func() { p.die(errCrash) })
			<-ctx.Done()
			return ctx.Err()
		}, []string{"connect: context canceled: crash"}, []error{errCrash}},
		{"too slow", func(ctx context.Context, p *fakeProcess) error {
			<-ctx.Done()
			return ctx.Err()
		}, []string{"no connection within 5s"}, []error{context.DeadlineExceeded}},
	}
	for _, tt := range tests {
		synctest.Test(t, func(t *testing.T) {
			f := &fakeServer{script: func(int, *fakeProcess) error { return nil }}
			s := newSupervisor(f.start, func(ctx context.Context, p childProcess) (int, error) {
				return 0, tt.connect(ctx, p.(*fakeProcess))
			}, &SuperviseOptions{MaxFailures: 1, ConnectTimeout: 5 * time.Second}, func() float64 { return 0 })
			defer s.Close()
			_, err := s.Conn(t.Context())
			if err == nil {
				t.Fatalf("%s: connected", tt.name)
			}
			wantContains(t, tt.name, err.Error(), tt.want...)
			for _, is := range tt.is {
				if !errors.Is(err, is) {
					t.Errorf("%s: %v is not %v", tt.name, err, is)
				}
			}
			if f.last.closed != 1 {
				t.Errorf("%s: the process was closed %d times", tt.name, f.last.closed)
			}
		})
	}
}

// TestSuperviseEnds checks that somebody else's closing of the process is the beginning of another
// one, also of a clean end.
func TestSuperviseCleanEndRestarts(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		f := &fakeServer{script: func(int, *fakeProcess) error { return nil }}
		s := supervise(f, nil)
		defer s.Close()
		synctest.Wait()
		f.last.Close()
		synctest.Wait()
		conn, err := s.Conn(t.Context())
		if conn != 102 || err != nil {
			t.Errorf("Conn: %d, %v", conn, err)
		}
		if got := s.State().LastErr; got == nil || got.Error() != "the server was closed" {
			t.Errorf("last error: %v", got)
		}
	})
}

func TestPhaseString(t *testing.T) {
	t.Parallel()
	for p := PhaseStarting; p <= PhaseClosed; p++ {
		if p.String() == "" {
			t.Errorf("phase %d has no name", int(p))
		}
	}
	if got := Phase(9).String(); got != "Phase(9)" {
		t.Error(got)
	}
}
