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

// How many processes of a server run at the same time in a probe. Programs that take a processor
// while they start, or wait for a lock as npx does, start no sooner when there are more of them;
// those that only wait do.
const (
	MaxProcesses     = 10
	defaultProcesses = 4
)

// A job is a group of steps in a revision. It has a connection, and opens others when it loses
// that.
type job struct {
	rev   mcp.Revision
	group *group
	// order is where the job stands in the order of a probe that does one after the other: that of
	// the findings, whenever the job was done.
	order int
	// opensRevision tells that the job finds out whether the server speaks the revision.
	opensRevision bool
	// concurrent tells that other processes of the server run at the same time.
	concurrent bool
	// rerun tells that the job is done once more, alone.
	rerun bool
	// suspect tells that a finding may be due to the processes that ran at the same time.
	suspect  bool
	sessions []uint64         // that it has had
	reserved uint64           // of them, the one that is not open yet; 0 if there is none
	stderr   *stderrForwarder // nil if nobody is shown it
	// failing is by method how lists fail that are asked for as they should be.
	failing map[string]*jsonrpc.Error

	driver *driver // the connection before the steps; nil if there is none
	err    error   // why there is none
}

// A plan is the jobs of a run that are still to do, ordered by their places.
type plan struct {
	todo []*job
	// expandedRevisions has the revisions all jobs of which were put into the plan.
	expandedRevisions map[mcp.Revision]bool
	// serial tells that processes of the server disturb each other: one job runs at a time.
	serial bool
	// serverAnswered tells that the server has answered: before that, one job runs at a time, since the
	// first start may install the server, and a server that says nothing is given up soon.
	serverAnswered bool
	// allNegotiated tells that the server is known to speak all revisions.
	allNegotiated bool
	limit         int           // of processes that run at the same time
	soloStart     time.Duration // that a handshake took while one job ran; 0 if there was none
	allGroups     bool          // all groups were put into the plan for a legacy revision
	silentCount   int           // revisions that nothing at all came to
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

// expand puts the jobs of a revision that is spoken into the plan, but for that which opened it.
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

// adaptLimit sets the limit by how long the slowest of several handshakes took that began at the same
// time. If the one alone took much longer, it was another kind of start, such as one that installs.
func (p *plan) adaptLimit(beside time.Duration) {
	p.limit = defaultProcesses
	if p.soloStart > 0 && beside >= p.soloStart*3/4 && beside <= p.soloStart*5/4 {
		p.limit = MaxProcesses
	}
}

// nextWave removes the jobs from the plan that are to run at the same time. Those that open revisions
// go first, since the others follow from them. Over HTTP there is one: servers limit their
// sessions.
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

// runWave runs jobs at the same time. First all of their processes start; when the last one is up, the
// steps begin. What the steps measure is thus not disturbed by processes that start.
func (r *run) runWave(ctx context.Context, wave []*job) error {
	for _, j := range wave {
		r.prepare(j, len(wave) > 1)
	}
	head := wave[0]
	if !head.opensRevision {
		r.opts.Progress(head.progressText())
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

// forEachJob calls f for all jobs at the same time, and waits.
func forEachJob(wave []*job, f func(*job)) {
	var wg sync.WaitGroup
	for _, j := range wave {
		wg.Go(func() { f(j) })
	}
	wg.Wait()
}

// prepare makes a job ready. Sessions get their numbers in the order of the jobs.
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
		v.conn.close() // it was well a moment ago, and that it no longer is the findings of the handshake say
		v = nil
	}
	j.driver, j.err = v, err
}

// closeAll closes the connections of jobs that do no steps.
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

// interfered reports whether the start of a job has failed beside others, or its process has ended
// since: servers may hold a lock or a port, or end those who started before them.
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
	case <-v.stdio.proc.Done():
		return true
	default:
		return false
	}
}

// noteStarts takes note of how long the handshakes of a wave took.
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

// requeueSerial puts jobs back into the plan. From now on they run alone, and what came of them does not
// count.
func (r *run) requeueSerial(wave []*job) {
	p := &r.plan
	p.serial = true
	for _, j := range wave {
		r.recorder.discard(j.sessions, "started beside others, which the server does not take")
		p.add(j)
	}
	known := func(rev mcp.Revision) bool { return slices.Contains(r.negotiated, rev) }
	p.allNegotiated, p.serverAnswered = false, len(r.negotiated) > 0
	p.allGroups = slices.ContainsFunc(r.negotiated, func(rev mcp.Revision) bool { return !rev.Modern() })
	maps.DeleteFunc(p.expandedRevisions, func(rev mcp.Revision, _ bool) bool { return !known(rev) })
	p.todo = slices.DeleteFunc(p.todo, func(j *job) bool { return !j.opensRevision && !known(j.rev) })
}

// noteOpened takes note of whether the server speaks the revision that a job has opened.
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

// maxSilent is after how many revisions a server that says nothing is given up.
const maxSilent = 2

// runSteps does the steps of jobs at the same time. What people are shown of a job is shown when all
// before it are done.
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
			r.opts.Progress(j.progressText())
		}
		j.stderr.release()
		<-done[i]
	}
	wg.Wait()
}

// ready reports whether a job has a connection to do its steps on.
func (j *job) ready() bool { return j.driver != nil && (j.group.noHandshake || j.driver.negotiated) }

// progressText is what people are told when a job runs.
func (j *job) progressText() string {
	text := j.rev.String() + ": " + j.group.name
	if j.rerun {
		text += ", once more"
	}
	return text
}

// suspectRules are the rules whose findings may be due to processes that run at the same time: they may
// share what one of them has locked, and take longer to end.
var suspectRules = []string{"probe/died", "probe/eof", "probe/failing", "probe/sigterm"}

// rerunSuspects does the jobs of a wave again that have doubtful findings, one by one. What came of them
// before does not count.
func (r *run) rerunSuspects(ctx context.Context, wave []*job) error {
	if len(wave) == 1 {
		return nil
	}
	for _, j := range wave {
		if !j.suspect {
			continue
		}
		r.recorder.discard(j.sessions, "done once more, without others beside it")
		again := *j
		again.opensRevision, again.rerun = false, true
		if err := r.runWave(ctx, []*job{&again}); err != nil {
			return err
		}
	}
	return nil
}

// runJob goes through the steps of a job.
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

// maxReopen is how often a group may lose its connection.
const maxReopen = 5

// connectTimeout is how long to wait for a handshake. Processes that start beside each other start
// more slowly, and one that does not start at all is tried once more, alone.
func (r *run) connectTimeout(j *job) time.Duration {
	r.mu.Lock()
	defer r.mu.Unlock()
	if j == nil || !j.concurrent || r.slowest == 0 {
		return r.opts.Connect
	}
	return MaxProcesses*r.slowest + minStartTimeout
}

// startTimeout is how long a process may take, from its start, until it says something. Once one has
// answered, the others need not take much longer.
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

// minStartTimeout is how long each process may take to start, however soon others have.
const minStartTimeout = 10 * time.Second
