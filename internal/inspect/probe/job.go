package probe

import (
	"cmp"
	"context"
	"maps"
	"slices"
	"sync"
	"time"

	"mcpwire/jsonrpc"
	"mcpwire/mcp"
)

// The flow of a probe is:
//
//	Run → probeAll   until the plan is empty
//	├ nextWave       takes jobs that may run together; opening jobs first
//	└ runWave
//	  ├ connect        opens the connections, with handshakes (driver)
//	  ├ interfered     processes disturb each other: requeueSerial, try again
//	  ├ noteOpened     adds the other jobs of a negotiated revision (expand)
//	  ├ runSteps       runs the steps of each job; steps report findings
//	  └ rerunSuspects  repeats jobs with doubtful findings, alone

// Limits on the processes of a server that run at the same time. More of them help only if the
// server mostly waits while it starts, not if it uses a processor or waits for a lock, as npx does.
const (
	MaxProcesses     = 10
	defaultProcesses = 4
)

// A job is a group of steps in one revision. It has a connection, and opens another one when that
// is lost.
type job struct {
	rev   mcp.Revision
	group *group
	// order is the position of the job in a sequential probe, and so the order of its findings.
	order int
	// opensRevision reports that the job determines whether the server supports the revision.
	opensRevision bool
	// concurrent reports that other processes of the server run at the same time.
	concurrent bool
	// rerun reports that the job is repeated, alone.
	rerun bool
	// suspect reports that concurrent processes may have caused a finding.
	suspect bool
	// sessions lists the job's sessions.
	sessions []uint64
	// reserved is the number of a session that is not open yet, or 0.
	reserved uint64
	// stderr is nil if nobody reads it.
	stderr *stderrForwarder
	// failing holds the errors of correct list requests, by method.
	failing map[string]*jsonrpc.Error

	// driver is the connection before the steps, or nil.
	driver *driver
	// err is why the connection failed.
	err error
}

// A plan holds the remaining jobs of a run, in order.
type plan struct {
	todo []*job
	// expandedRevisions holds the revisions with all jobs added.
	expandedRevisions map[mcp.Revision]bool
	// serial reports that processes of the server interfere, so that jobs run one at a time.
	serial bool
	// serverAnswered reports that the server has answered. Before that, jobs run one at a time: the
	// first start may install the server, and a silent server is abandoned soon.
	serverAnswered bool
	// allNegotiated reports that the server is known to support all revisions.
	allNegotiated bool
	// limit is the maximum number of concurrent processes.
	limit int
	// soloStart is the time of a handshake while one job ran, or 0.
	soloStart time.Duration
	// allGroups reports that all groups were added for a legacy revision.
	allGroups bool
	// finished counts the jobs that are done.
	finished int
	// silentCount counts the revisions without any response.
	silentCount int
}

func (r *run) newPlan() {
	r.plan = plan{expandedRevisions: map[mcp.Revision]bool{}, limit: defaultProcesses}
	if seen := r.opts.Baseline; seen != nil && r.stdio() {
		r.slowest = max(seen.Solo, seen.Concurrent)
		r.plan.serverAnswered, r.plan.allNegotiated, r.plan.soloStart = true, true, seen.Solo
		r.plan.adaptLimit(seen.Concurrent)
	}
	for i := range r.wanted {
		r.plan.add(&job{rev: r.wanted[i], group: &groups()[0], order: i * len(groups()), opensRevision: true})
	}
	if r.plan.allNegotiated {
		for _, rev := range r.wanted {
			r.expand(rev)
		}
	}
}

func (p *plan) add(j *job) {
	i, _ := slices.BinarySearchFunc(p.todo, j, func(a, b *job) int { return cmp.Compare(a.order, b.order) })
	p.todo = slices.Insert(p.todo, i, j)
}

// expand adds the jobs of a supported revision, except the one that opened it.
func (r *run) expand(rev mcp.Revision) {
	p := &r.plan
	if p.expandedRevisions[rev] {
		return
	}
	p.expandedRevisions[rev] = true
	whole := rev.Modern() || !p.allGroups
	p.allGroups = p.allGroups || !rev.Modern()
	list := groups()
	for i := range list {
		g := &list[i]
		switch {
		case i == 0, !whole && !g.everyRevision, g.httpOnly && r.stdio(), g.stdioOnly && !r.stdio(), g.modernOnly && !rev.Modern(), g.legacyOnly && rev.Modern():
			continue
		}
		p.add(&job{rev: rev, group: g, order: slices.Index(r.wanted, rev)*len(list) + i})
	}
}

// adaptLimit sets the limit from the slowest of several concurrent handshakes. If a solo one took
// much longer, it was a different kind of start, such as an installation.
func (p *plan) adaptLimit(beside time.Duration) {
	p.limit = defaultProcesses
	if p.soloStart > 0 && beside >= p.soloStart*3/4 && beside <= p.soloStart*5/4 {
		p.limit = MaxProcesses
	}
}

// nextWave removes the jobs to run next from the plan. Jobs that open revisions go first, because
// they lead to others. Over HTTP it is one job, because servers limit sessions.
func (r *run) nextWave() []*job {
	p := &r.plan
	n := 1
	if r.stdio() && p.serverAnswered && !p.serial {
		n = min(p.limit, len(p.todo))
	}
	var wave, rest []*job
	if n == 1 {
		wave, rest = p.todo[:1:1], p.todo[1:]
	} else {
		room := n
		for _, j := range p.todo {
			if j.opensRevision {
				room--
			}
		}
		for _, j := range p.todo {
			switch {
			case j.opensRevision && len(wave) < n:
				wave = append(wave, j)
			case !j.opensRevision && room > 0:
				wave = append(wave, j)
				room--
			default:
				rest = append(rest, j)
			}
		}
	}
	p.todo = rest
	return wave
}

// runWave runs jobs concurrently. It starts all processes and waits for the last one before the
// steps begin, so that starts do not distort measurements.
func (r *run) runWave(ctx context.Context, wave []*job) error {
	for _, j := range wave {
		r.prepare(j, len(wave) > 1)
	}
	head := wave[0]
	if !head.opensRevision {
		r.noteProgress(head, len(wave))
	}
	head.stderr.release()
	forEachJob(wave, func(j *job) { r.connect(ctx, j) })
	if err := ctx.Err(); err != nil {
		closeAll(wave)
		return err
	}
	if len(wave) > 1 && slices.ContainsFunc(wave, r.interfered) {
		closeAll(wave)
		r.requeueSerial(wave)
		return nil
	}
	r.noteStarts(wave)
	for _, j := range wave {
		if err := r.noteOpened(j); err != nil {
			closeAll(wave)
			return err
		}
	}
	r.runSteps(ctx, wave)
	if ctx.Err() != nil {
		return ctx.Err()
	}
	return r.rerunSuspects(ctx, wave)
}

// forEachJob calls f concurrently for all jobs and waits.
func forEachJob(wave []*job, f func(*job)) {
	var wg sync.WaitGroup
	for _, j := range wave {
		wg.Go(func() { f(j) })
	}
	wg.Wait()
}

// prepare resets a job. Sessions are numbered in the order of the jobs.
func (r *run) prepare(j *job, beside bool) {
	j.concurrent, j.suspect, j.sessions, j.reserved = beside, false, nil, 0
	j.driver, j.err, j.failing = nil, nil, map[string]*jsonrpc.Error{}
	if r.opts.Stderr != nil {
		j.stderr = &stderrForwarder{w: r.opts.Stderr}
	}
	j.reserved = r.nextSession(j)
}

// connect opens the connection of a job.
func (r *run) connect(ctx context.Context, j *job) {
	v, err := r.open(ctx, j, j.rev, !j.group.noHandshake)
	if err == nil && !j.group.noHandshake && !j.opensRevision && !v.negotiated {
		// The handshake worked before; its findings report the failure.
		v.conn.close()
		v = nil
	}
	j.driver, j.err = v, err
}

// closeAll closes the connections of jobs that run no steps.
func closeAll(wave []*job) {
	forEachJob(wave, (*job).close)
	for _, j := range wave {
		j.stderr.release()
	}
}

func (j *job) close() {
	if j.driver != nil {
		j.driver.conn.close()
		j.driver = nil
	}
}

// interfered reports whether a job failed to start concurrently with others, or its process has
// ended since. Servers may hold a lock or a port, or end earlier processes.
func (r *run) interfered(j *job) bool {
	v := j.driver
	switch {
	case v == nil:
		return true
	case j.opensRevision && !v.negotiated && !r.plan.allNegotiated:
		return !v.answered
	case !j.group.noHandshake && !v.negotiated:
		return true
	}
	select {
	case <-v.stdio.Child().Done():
		return true
	default:
		return false
	}
}

// noteStarts records how long the handshakes of a wave took.
func (r *run) noteStarts(wave []*job) {
	slowest := time.Duration(0)
	for _, j := range wave {
		if j.driver != nil {
			slowest = max(slowest, j.driver.took)
		}
	}
	switch p := &r.plan; {
	case slowest == 0:
	case len(wave) > 1:
		p.adaptLimit(slowest)
	case p.soloStart == 0:
		p.soloStart = slowest
	}
}

// requeueSerial puts jobs back into the plan to run one at a time, and discards their results.
func (r *run) requeueSerial(wave []*job) {
	p := &r.plan
	p.serial = true
	for _, j := range wave {
		r.recorder.discard(j.sessions, "started while other processes of the server ran, which it does not allow")
		p.add(j)
	}
	known := func(rev mcp.Revision) bool { return slices.Contains(r.negotiated, rev) }
	p.allNegotiated, p.serverAnswered = false, len(r.negotiated) > 0
	p.allGroups = slices.ContainsFunc(r.negotiated, func(rev mcp.Revision) bool { return !rev.Modern() })
	maps.DeleteFunc(p.expandedRevisions, func(rev mcp.Revision, _ bool) bool { return !known(rev) })
	p.todo = slices.DeleteFunc(p.todo, func(j *job) bool { return !j.opensRevision && !known(j.rev) })
}

// noteOpened records whether the server supports the revision that a job has opened.
func (r *run) noteOpened(j *job) error {
	if !j.opensRevision {
		return nil
	}
	if j.err != nil {
		return j.err
	}
	v, p := j.driver, &r.plan
	p.serverAnswered = p.serverAnswered || v.answered
	if v.negotiated {
		r.negotiated = append(r.negotiated, j.rev)
		r.expand(j.rev)
		return nil
	}
	r.lastErr, r.refused = v.failure, v.reportRefusal
	if v.silent {
		p.silentCount++
	}
	if len(r.negotiated) == 0 && p.silentCount == maxSilent {
		p.todo = nil
	}
	return nil
}

// maxSilent is the number of revisions without a response after which a server is abandoned.
const maxSilent = 2

// runSteps runs the steps of jobs concurrently. Output about a job is released when all jobs before
// it are done.
func (r *run) runSteps(ctx context.Context, wave []*job) {
	var wg sync.WaitGroup
	done, ready := make([]chan struct{}, len(wave)), make([]bool, len(wave))
	for i, j := range wave {
		done[i], ready[i] = make(chan struct{}), j.ready()
		wg.Go(func() {
			defer close(done[i])
			if ready[i] {
				r.runJob(ctx, j)
			}
			j.close()
		})
	}
	for i, j := range wave {
		if ready[i] && (i > 0 || j.opensRevision) {
			r.noteProgress(j, len(wave)-i)
		}
		j.stderr.release()
		<-done[i]
		if !j.rerun {
			r.plan.finished++
		}
	}
	wg.Wait()
}

// ready reports whether a job has a connection for its steps.
func (j *job) ready() bool { return j.driver != nil && (j.group.noHandshake || j.driver.negotiated) }

// noteProgress reports that a job is the next step. left counts the jobs of its wave that are not
// done.
func (r *run) noteProgress(j *job, left int) {
	p := &r.plan
	step := Step{Text: j.rev.String() + ": " + j.group.name, Session: p.finished + 1, Sessions: p.finished + left + len(p.todo)}
	if j.rerun {
		step.Text += ", again"
		step.Session, step.Sessions = p.finished, p.finished+len(p.todo)
	}
	r.opts.Progress(step)
}

// suspectRules are the rules with findings that concurrent processes may cause: these may wait for
// a shared lock and take longer to end.
var suspectRules = []string{"probe/died", "probe/eof", "probe/failing", "probe/sigterm"}

// rerunSuspects repeats the suspect jobs of a wave one at a time, and discards their previous
// results.
func (r *run) rerunSuspects(ctx context.Context, wave []*job) error {
	if len(wave) == 1 {
		return nil
	}
	for _, j := range wave {
		if !j.suspect {
			continue
		}
		r.recorder.discard(j.sessions, "repeated, with no other process of the server running")
		again := *j
		again.opensRevision, again.rerun = false, true
		if err := r.runWave(ctx, []*job{&again}); err != nil {
			return err
		}
	}
	return nil
}

// runJob runs the steps of a job.
func (r *run) runJob(ctx context.Context, j *job) {
	v, lost := j.driver, 0
	j.driver = nil
	for _, s := range j.group.steps {
		if v == nil {
			var err error
			if v, err = r.open(ctx, j, j.rev, !j.group.noHandshake); err != nil || !j.group.noHandshake && !v.negotiated {
				if err == nil {
					v.conn.close()
				}
				return
			}
		}
		s(ctx, v)
		if ctx.Err() != nil {
			break
		}
		if !v.conn.alive() {
			v.conn.close()
			v = nil
			if lost++; lost > maxReopen {
				return
			}
		}
	}
	if v != nil {
		v.conn.close()
	}
}

// maxReopen limits how often a group may lose its connection.
const maxReopen = 5

// connectTimeout returns the timeout of a handshake. Concurrent processes start more slowly, and
// one that fails is tried again, alone.
func (r *run) connectTimeout(j *job) time.Duration {
	r.mu.Lock()
	defer r.mu.Unlock()
	if j == nil || !j.concurrent || r.slowest == 0 {
		return r.opts.Connect
	}
	return MaxProcesses*r.slowest + minStartTimeout
}

// startTimeout returns how long a process may take from its start to its first output. After one
// has answered, others should not take much longer.
func (r *run) startTimeout(j *job) time.Duration {
	r.mu.Lock()
	defer r.mu.Unlock()
	switch {
	case r.slowest == 0:
		return r.opts.Connect
	case j != nil && j.concurrent:
		return MaxProcesses*r.slowest + minStartTimeout
	}
	return min(r.opts.Connect, 4*r.slowest+minStartTimeout)
}

// minStartTimeout is the minimum of the start timeout.
const minStartTimeout = 10 * time.Second
