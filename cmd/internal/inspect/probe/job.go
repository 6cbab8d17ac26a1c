package probe

import (
	"cmp"
	"context"
	"slices"
	"sync"
	"time"

	"mcpwire/internal/base/wait"
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
//	  ├ held           while revisions are still to be opened, the jobs wait
//	  ├ runSteps       runs the steps of each job; steps report findings
//	  └ rerunSuspects  repeats jobs with doubtful findings, alone

// maxProcesses limits the processes of a server that run at the same time. It is the number that a
// server of the legacy era needs in all: one for each revision, and one without a handshake.
const maxProcesses = 5

// A job is a group of steps in one revision. It has a connection, and opens another one when that
// is lost.
type job struct {
	rev   mcp.Revision
	group *group
	// order is the position of the job in a sequential probe, and so the order of its findings.
	order int
	// opensRevision reports that the job determines whether the server supports the revision. It
	// is cleared when that is known.
	opensRevision bool
	// whole reports that the revision is the newest of its era that the server supports, so that
	// the job also runs the steps that one revision is enough for.
	whole bool
	// last is a step at the end, which ends the process. It may be nil.
	last step
	// discovers reports that server/discover comes before the handshake: a client of both eras
	// sends it first, and initialize after the error.
	discovers bool
	// handed is the connection that has got this error, or nil.
	handed *driver
	// announced is the last step that was reported.
	announced string
	// completed reports that the job has done its own handshake, so that other connections of the
	// job begin with one.
	completed bool
	// diedFirst reports that the server exited at a first request that was not initialize.
	diedFirst bool
	// concurrent reports that other processes of the server run at the same time.
	concurrent bool
	// rerun reports that the job is repeated, alone.
	rerun bool
	// suspect reports that concurrent processes may have caused a finding.
	suspect  bool
	sessions []uint64
	// reserved is the number of a session that is not open yet, or 0.
	reserved uint64
	// stderr is nil if nobody reads it.
	stderr *stderrForwarder
	// failing holds the errors of correct list requests, by method.
	failing map[string]*jsonrpc.Error

	// driver is the connection before the steps, or nil.
	driver *driver
	// observation is the result of the handshake that opened the revision.
	observation Observation
	// err is why the connection failed.
	err error
}

// A plan holds the remaining jobs of a run, in order.
type plan struct {
	todo []*job
	// held holds jobs with a connection, whose steps wait until all revisions are opened.
	held   []*job
	opened bool
	// expandedRevisions holds the revisions with all jobs added.
	expandedRevisions map[mcp.Revision]bool
	// serial reports that processes of the server interfere, so that jobs run one at a time.
	serial bool
	// serverAnswered reports that the server has answered. Before that, jobs run one at a time: the
	// first start may install the server, and a silent server is abandoned soon.
	serverAnswered bool
	// requested reports that the request after the handshakes was sent.
	requested bool
	// allGroups reports that all groups were added for a legacy revision.
	allGroups bool
	finished  int
	// silentCount counts the revisions without any response.
	silentCount int
}

func (r *run) newPlan() {
	r.plan = plan{expandedRevisions: map[mcp.Revision]bool{}}
	list := r.groups()
	for i := range r.wanted {
		r.plan.add(&job{rev: r.wanted[i], group: &list[0], order: i * len(list), opensRevision: true})
	}
}

func (p *plan) add(j *job) {
	i, _ := slices.BinarySearchFunc(p.todo, j, func(a, b *job) int { return cmp.Compare(a.order, b.order) })
	p.todo = slices.Insert(p.todo, i, j)
}

// expand adds the jobs of a supported revision to the one that opened it.
func (r *run) expand(opener *job) {
	p, rev := &r.plan, opener.rev
	if p.expandedRevisions[rev] {
		return
	}
	p.expandedRevisions[rev] = true
	whole := rev.Modern() || !p.allGroups
	p.allGroups = p.allGroups || !rev.Modern()
	if opener.whole = whole; r.opts.HandshakesOnly {
		return
	}
	list := r.groups()
	for i := range list {
		g := &list[i]
		if i == 0 || !whole && !g.everyRevision || g.modernOnly && !rev.Modern() || g.legacyOnly && rev.Modern() {
			continue
		}
		p.add(&job{rev: rev, group: g, order: slices.Index(r.wanted, rev)*len(list) + i})
	}
	if r.stdio() && !whole {
		r.takeEnd(opener)
	}
}

// takeEnd lets a job end its process as another job of the era would, which then needs none.
func (r *run) takeEnd(j *job) {
	p := &r.plan
	i := slices.IndexFunc(p.todo, func(o *job) bool { return o.group.endsProcess && o.rev.Modern() == j.rev.Modern() })
	if i >= 0 {
		j.last = p.todo[i].group.steps[0]
		p.todo = slices.Delete(p.todo, i, i+1)
	}
}

// opens reports whether a job determines whether the server supports a revision.
func opens(j *job) bool { return j.opensRevision }

// nextWave removes the jobs to run next from the plan. Jobs that open revisions go first, because
// they lead to others. Over HTTP it is one job, because servers limit sessions. So is one that gets
// a connection, because it starts no process.
func (r *run) nextWave() []*job {
	p := &r.plan
	n := 1
	if r.stdio() && p.serverAnswered && !p.serial && !slices.ContainsFunc(p.todo, func(j *job) bool { return j.handed != nil }) {
		n = maxProcesses - len(p.held)
	}
	wave := slices.Clone(p.todo)
	if r.stdio() {
		slices.SortStableFunc(wave, func(a, b *job) int {
			switch {
			case a.opensRevision == b.opensRevision:
				return 0
			case a.opensRevision:
				return -1
			}
			return 1
		})
	}
	wave = wave[:min(n, len(wave))]
	p.todo = slices.DeleteFunc(p.todo, func(j *job) bool { return slices.Contains(wave, j) })
	slices.SortFunc(wave, compareJobs)
	return wave
}

const settleTime = 20 * time.Millisecond

func compareJobs(a, b *job) int { return cmp.Compare(a.order, b.order) }

// runWave runs jobs concurrently. It starts all processes and waits for the last one before the
// steps begin, so that starts do not distort measurements. Over stdio, the steps also wait for the
// handshakes of all revisions, unless processes disturb each other.
func (r *run) runWave(ctx context.Context, wave []*job) error {
	p := &r.plan
	for _, j := range wave {
		r.prepare(j, len(wave)+len(p.held) > 1)
	}
	if len(wave) > 0 {
		head := wave[max(0, slices.IndexFunc(wave, opens))]
		r.noteProgress(head, len(wave))
		head.stderr.release()
	}
	forEachJob(wave, func(j *job) { r.connect(ctx, j) })
	all := append(p.held, wave...)
	p.held = nil
	if err := ctx.Err(); err != nil {
		closeAll(all)
		r.abandon()
		return err
	}
	if len(all) > 1 && slices.ContainsFunc(all, r.interfered) {
		closeAll(all)
		r.requeueSerial(all)
		return nil
	}
	for _, j := range wave {
		goOn, err := r.noteOpened(j)
		if err != nil || !goOn {
			closeAll(all)
			r.abandon()
			return err
		}
	}
	if r.opts.HandshakesOnly {
		r.firstRequest(ctx, wave)
	}
	opening := slices.ContainsFunc(p.todo, opens)
	if opening && r.stdio() && !p.serial {
		for _, j := range all {
			if j.ready() {
				p.held = append(p.held, j)
			} else {
				j.close()
			}
		}
		return nil
	}
	if r.opts.HandshakesOnly {
		closeAll(all)
		p.todo = slices.DeleteFunc(p.todo, func(j *job) bool { return !j.opensRevision })
	}
	if !opening && !p.opened {
		p.opened = true
		if r.observes {
			// Standard error that a server wrote before its response comes through another
			// pipe, and may be read later.
			wait.Sleep(ctx, settleTime)
		}
		r.opts.Opened()
	}
	if r.opts.HandshakesOnly {
		return nil
	}
	slices.SortFunc(all, compareJobs)
	r.runSteps(ctx, all)
	if ctx.Err() != nil {
		return ctx.Err()
	}
	return r.rerunSuspects(ctx, all)
}

// firstRequest sends the lists' requests on one connection, the first that is negotiated: a server
// may fail only then.
func (r *run) firstRequest(ctx context.Context, wave []*job) {
	i := slices.IndexFunc(wave, (*job).ready)
	if i < 0 || r.plan.requested {
		return
	}
	r.plan.requested = true
	lists(ctx, wave[i].driver)
	wave[i].close()
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
	j.completed, j.diedFirst = false, false
	if r.opts.Stderr != nil {
		j.stderr = &stderrForwarder{w: r.opts.Stderr}
	}
	if j.handed != nil {
		j.sessions = append(j.sessions, j.handed.stdio.session)
		r.recorder.assign(j.handed.stdio.session, j.order)
		return
	}
	j.reserved = r.nextSession(j)
}

func (r *run) connect(ctx context.Context, j *job) {
	v, err := r.openAfterDiscover(ctx, j)
	if v == nil && err == nil {
		v, err = r.open(ctx, j, j.rev, !j.group.noHandshake)
	}
	if j.opensRevision && r.observes {
		if v != nil && v.first.state != answered {
			v.conn.close()
		}
		j.observation = observe(j.rev, v, err)
	}
	if err == nil && !j.group.noHandshake && !j.opensRevision && !v.negotiated {
		// The handshake worked before; its findings report the failure.
		v.conn.close()
		v = nil
	}
	j.driver, j.err = v, err
}

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
	case j.opensRevision && !v.negotiated:
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

// requeueSerial puts jobs back into the plan to run one at a time, and discards their results.
func (r *run) requeueSerial(wave []*job) {
	p := &r.plan
	p.serial = true
	for _, j := range wave {
		r.recorder.discard(j.sessions, "started while other processes of the server ran, which it does not allow")
		p.add(j)
	}
}

// noteOpened records whether the server supports the revision that a job has opened, and reports
// the handshake. It returns false if no other revision is to be tried.
func (r *run) noteOpened(j *job) (goOn bool, err error) {
	if !j.opensRevision {
		return true, nil
	}
	j.opensRevision = false
	if goOn = r.opts.Handshake(&j.observation); j.err != nil {
		return false, j.err
	}
	v, p := j.driver, &r.plan
	p.serverAnswered = p.serverAnswered || v.answered
	if v.negotiated {
		r.negotiated = append(r.negotiated, j.rev)
		r.expand(j)
		return goOn, nil
	}
	r.lastErr, r.refused = v.failure, v.reportRefusal
	if v.silent {
		p.silentCount++
	}
	if v.fallsBack && v.conn.alive() {
		r.handOn(j)
	}
	return goOn && (len(r.negotiated) > 0 || p.silentCount < maxSilent), nil
}

// handOn hands the connection of a job whose server/discover got an error to the job that opens the
// newest legacy revision, if that comes next.
func (r *run) handOn(j *job) {
	i := slices.IndexFunc(r.plan.todo, opens)
	if i < 0 || r.plan.todo[i].rev.Modern() || !r.stdio() {
		return
	}
	next := r.plan.todo[i]
	next.discovers, next.handed, j.driver = true, j.driver, nil
}

// abandon removes all jobs from the plan, and closes the connection that one of them has got.
func (r *run) abandon() {
	for _, j := range r.plan.todo {
		if j.handed != nil {
			j.handed.conn.close()
		}
	}
	r.plan.todo = nil
}

// openAfterDiscover opens the connection of a job on which server/discover comes first. It returns
// nil if that is not wanted, or if the server does not continue with a handshake.
func (r *run) openAfterDiscover(ctx context.Context, j *job) (*driver, error) {
	if !j.discovers {
		return nil, nil
	}
	old := j.handed
	if j.handed = nil; old == nil {
		var err error
		if old, err = r.open(ctx, j, mcp.LatestRevision, false); err != nil {
			return nil, err
		}
		old.discover(ctx)
	}
	old.stdio.job = j
	v := &driver{r: r, job: j, conn: old.conn, stdio: old.stdio, rev: j.rev, firstEntries: map[string][]byte{}, idCount: old.idCount}
	if err := v.handshake(ctx); err != nil {
		v.conn.close()
		return nil, err
	}
	if !v.answered {
		v.conn.close()
		return nil, nil
	}
	return v, nil
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
		if ready[i] {
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
	left += len(p.held)
	step := Step{Text: j.rev.String() + ": " + j.group.name, Session: p.finished + 1, Sessions: p.finished + left + len(p.todo)}
	if j.opensRevision {
		step.Text = j.rev.String() + ": handshake"
	}
	if j.rerun {
		step.Text += ", again"
		step.Session, step.Sessions = p.finished, p.finished+len(p.todo)
	}
	if j.announced != step.Text {
		j.announced = step.Text
		r.opts.Progress(step)
	}
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

func (r *run) runJob(ctx context.Context, j *job) {
	v, lost := j.driver, 0
	j.driver = nil
	for _, s := range j.steps() {
		if v == nil {
			handshake := !j.group.noHandshake || j.completed
			var err error
			if v, err = r.open(ctx, j, j.rev, handshake); err != nil || handshake && !v.negotiated {
				if err == nil {
					v.conn.close()
				}
				return
			}
		}
		s(ctx, v)
		if ctx.Err() != nil || r.hopeless() {
			break
		}
		if v.stale || !v.conn.alive() {
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

// maxReopen limits how often a job may lose its connection.
const maxReopen = 20

func (j *job) steps() []step {
	list := slices.Clone(j.group.steps)
	if j.whole {
		for _, s := range j.group.more {
			if !s.modernOnly && !s.legacyOnly || s.modernOnly && j.rev.Modern() || s.legacyOnly && !j.rev.Modern() {
				list = append(list, s.run)
			}
		}
	}
	if j.last != nil {
		list = append(list, j.last)
	}
	return list
}

// connectTimeout returns the timeout of a handshake. Concurrent processes start more slowly, and
// one that fails is tried again, alone.
func (r *run) connectTimeout(j *job) time.Duration {
	r.mu.Lock()
	defer r.mu.Unlock()
	switch {
	case r.slowest == 0 && r.plan.silentCount > 0:
		return min(r.opts.Connect, secondWait)
	case !j.concurrent || r.slowest == 0:
		return r.opts.Connect
	}
	return maxProcesses*r.slowest + minStartTimeout
}

// secondWait limits the wait for a server that did not respond to the first handshake: it has had
// the time to start.
const secondWait = 10 * time.Second

// startTimeout returns how long a process may take from its start to its first output. After one
// has answered, others should not take much longer.
func (r *run) startTimeout(j *job) time.Duration {
	r.mu.Lock()
	defer r.mu.Unlock()
	switch {
	case r.slowest == 0:
		return r.opts.Connect
	case j.concurrent:
		return maxProcesses*r.slowest + minStartTimeout
	}
	return min(r.opts.Connect, 4*r.slowest+minStartTimeout)
}

// minStartTimeout is the minimum of the start timeout.
const minStartTimeout = 10 * time.Second
