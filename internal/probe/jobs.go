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
	MaxProcesses   = 10
	usualProcesses = 4
)

// A job is a group of steps in a revision. It has a connection, and opens others when it loses
// that.
type job struct {
	rev   mcp.Revision
	group *group
	// place is where the job stands in the order of a probe that does one after the other: that of
	// the findings, whenever the job was done.
	place int
	// opening tells that the job finds out whether the server speaks the revision.
	opening bool
	// beside tells that other processes of the server run at the same time.
	beside bool
	// again tells that the job is done once more, alone.
	again bool
	// doubtful tells that a finding may be due to the processes that ran at the same time.
	doubtful bool
	sessions []uint64 // that it has had
	reserved uint64   // of them, the one that is not open yet; 0 if there is none
	stderr   *relay   // nil if nobody is shown it
	// failing is by method how lists fail that are asked for as they should be.
	failing map[string]*jsonrpc.Error

	visit *visit // the connection before the steps; nil if there is none
	err   error  // why there is none
}

// A plan is the jobs of a run that are still to do, ordered by their places.
type plan struct {
	todo []*job
	// expanded has the revisions all jobs of which were put into the plan.
	expanded map[mcp.Revision]bool
	// alone tells that processes of the server disturb each other: one job runs at a time.
	alone bool
	// lively tells that the server has answered: before that, one job runs at a time, since the
	// first start may install the server, and a server that says nothing is given up soon.
	lively bool
	// spoken tells that the server is known to speak all revisions.
	spoken bool
	limit  int           // of processes that run at the same time
	single time.Duration // that a handshake took while one job ran; 0 if there was none
	whole  bool          // all groups were put into the plan for a legacy revision
	mute   int           // revisions that nothing at all came to
}

func (r *run) newPlan() {
	r.plan = plan{expanded: map[mcp.Revision]bool{}, limit: usualProcesses}
	if seen := r.opts.Seen; seen != nil && r.stdio() {
		r.slowest = max(seen.Alone, seen.Beside)
		r.plan.lively, r.plan.spoken, r.plan.single = true, true, seen.Alone
		r.plan.adapt(seen.Beside)
	}
	for i := range r.list {
		r.plan.add(&job{rev: r.list[i], group: &groups()[0], place: i * len(groups()), opening: true})
	}
	if r.plan.spoken {
		for _, rev := range r.list {
			r.expand(rev)
		}
	}
}

func (p *plan) add(j *job) {
	i, _ := slices.BinarySearchFunc(p.todo, j, func(a, b *job) int { return cmp.Compare(a.place, b.place) })
	p.todo = slices.Insert(p.todo, i, j)
}

// expand puts the jobs of a revision that is spoken into the plan, but for that which opened it.
func (r *run) expand(rev mcp.Revision) {
	p := &r.plan
	if p.expanded[rev] {
		return
	}
	p.expanded[rev] = true
	whole := rev.Modern() || !p.whole
	p.whole = p.whole || !rev.Modern()
	list := groups()
	for i := range list {
		g := &list[i]
		switch {
		case i == 0, !whole && !g.always, g.web && r.stdio(), g.pipe && !r.stdio(), g.modern && !rev.Modern(), g.legacy && rev.Modern():
			continue
		}
		p.add(&job{rev: rev, group: g, place: slices.Index(r.list, rev)*len(list) + i})
	}
}

// adapt sets the limit by how long the slowest of several handshakes took that began at the same
// time. If the one alone took much longer, it was another kind of start, such as one that installs.
func (p *plan) adapt(beside time.Duration) {
	p.limit = usualProcesses
	if p.single > 0 && beside >= p.single*3/4 && beside <= p.single*5/4 {
		p.limit = MaxProcesses
	}
}

// take removes the jobs from the plan that are to run at the same time. Those that open revisions
// go first, since the others follow from them. Over HTTP there is one: servers limit their
// sessions.
func (r *run) take() []*job {
	p := &r.plan
	n := 1
	if r.stdio() && p.lively && !p.alone {
		n = min(p.limit, len(p.todo))
	}
	var wave, rest []*job
	if n == 1 {
		wave, rest = p.todo[:1:1], p.todo[1:]
	} else {
		room := n
		for _, j := range p.todo {
			if j.opening {
				room--
			}
		}
		for _, j := range p.todo {
			switch {
			case j.opening && len(wave) < n:
				wave = append(wave, j)
			case !j.opening && room > 0:
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

// do runs jobs at the same time. First all of their processes start; when the last one is up, the
// steps begin. What the steps measure is thus not disturbed by processes that start.
func (r *run) do(ctx context.Context, wave []*job) error {
	for _, j := range wave {
		r.begin(j, len(wave) > 1)
	}
	head := wave[0]
	if !head.opening {
		r.opts.Progress(head.text())
	}
	head.stderr.pass()
	each(wave, func(j *job) { r.launch(ctx, j) })
	if err := ctx.Err(); err != nil {
		shut(wave)
		return err
	}
	if len(wave) > 1 && slices.ContainsFunc(wave, r.disturbed) {
		shut(wave)
		r.separate(wave)
		return nil
	}
	r.measure(wave)
	for _, j := range wave {
		if err := r.opened(j); err != nil {
			shut(wave)
			return err
		}
	}
	r.work(ctx, wave)
	if ctx.Err() != nil {
		return ctx.Err()
	}
	return r.repeat(ctx, wave)
}

// each calls f for all jobs at the same time, and waits.
func each(wave []*job, f func(*job)) {
	var wg sync.WaitGroup
	for _, j := range wave {
		wg.Go(func() { f(j) })
	}
	wg.Wait()
}

// begin makes a job ready. Sessions get their numbers in the order of the jobs.
func (r *run) begin(j *job, beside bool) {
	j.beside, j.doubtful, j.sessions, j.reserved = beside, false, nil, 0
	j.visit, j.err, j.failing = nil, nil, map[string]*jsonrpc.Error{}
	if r.opts.Stderr != nil {
		j.stderr = &relay{w: r.opts.Stderr}
	}
	j.reserved = r.nextSession(j)
}

// launch opens the connection of a job.
func (r *run) launch(ctx context.Context, j *job) {
	v, err := r.open(ctx, j, j.rev, !j.group.bare)
	if err == nil && !j.group.bare && !j.opening && !v.spoken {
		v.link.close() // it was well a moment ago, and that it no longer is the findings of the handshake say
		v = nil
	}
	j.visit, j.err = v, err
}

// shut closes the connections of jobs that do no steps.
func shut(wave []*job) {
	each(wave, (*job).close)
	for _, j := range wave {
		j.stderr.pass()
	}
}

func (j *job) close() {
	if j.visit != nil {
		j.visit.link.close()
		j.visit = nil
	}
}

// disturbed reports whether the start of a job has failed beside others, or its process has ended
// since: servers may hold a lock or a port, or end those who started before them.
func (r *run) disturbed(j *job) bool {
	v := j.visit
	switch {
	case v == nil:
		return true
	case j.opening && !v.spoken && !r.plan.spoken:
		return !v.answered
	case !j.group.bare && !v.spoken:
		return true
	}
	select {
	case <-v.pipe.proc.Done():
		return true
	default:
		return false
	}
}

// measure takes note of how long the handshakes of a wave took.
func (r *run) measure(wave []*job) {
	slowest := time.Duration(0)
	for _, j := range wave {
		if j.visit != nil {
			slowest = max(slowest, j.visit.took)
		}
	}
	switch p := &r.plan; {
	case slowest == 0:
	case len(wave) > 1:
		p.adapt(slowest)
	case p.single == 0:
		p.single = slowest
	}
}

// separate puts jobs back into the plan. From now on they run alone, and what came of them does not
// count.
func (r *run) separate(wave []*job) {
	p := &r.plan
	p.alone = true
	for _, j := range wave {
		r.journal.drop(j.sessions, "started beside others, which the server does not take")
		p.add(j)
	}
	known := func(rev mcp.Revision) bool { return slices.Contains(r.speaks, rev) }
	p.spoken, p.lively = false, len(r.speaks) > 0
	p.whole = slices.ContainsFunc(r.speaks, func(rev mcp.Revision) bool { return !rev.Modern() })
	maps.DeleteFunc(p.expanded, func(rev mcp.Revision, _ bool) bool { return !known(rev) })
	p.todo = slices.DeleteFunc(p.todo, func(j *job) bool { return !j.opening && !known(j.rev) })
}

// opened takes note of whether the server speaks the revision that a job has opened.
func (r *run) opened(j *job) error {
	if !j.opening {
		return nil
	}
	if j.err != nil {
		return j.err
	}
	v, p := j.visit, &r.plan
	p.lively = p.lively || v.answered
	if v.spoken {
		r.speaks = append(r.speaks, j.rev)
		r.expand(j.rev)
		return nil
	}
	r.last, r.refused = v.failure, v.refusal
	if v.mute {
		p.mute++
	}
	if len(r.speaks) == 0 && p.mute == maxMute {
		p.todo = nil
	}
	return nil
}

// maxMute is after how many revisions a server that says nothing is given up.
const maxMute = 2

// work does the steps of jobs at the same time. What people are shown of a job is shown when all
// before it are done.
func (r *run) work(ctx context.Context, wave []*job) {
	var wg sync.WaitGroup
	done, ready := make([]chan struct{}, len(wave)), make([]bool, len(wave))
	for i, j := range wave {
		done[i], ready[i] = make(chan struct{}), j.ready()
		wg.Go(func() {
			defer close(done[i])
			if ready[i] {
				r.visit(ctx, j)
			}
			j.close()
		})
	}
	for i, j := range wave {
		if ready[i] && (i > 0 || j.opening) {
			r.opts.Progress(j.text())
		}
		j.stderr.pass()
		<-done[i]
	}
	wg.Wait()
}

// ready reports whether a job has a connection to do its steps on.
func (j *job) ready() bool { return j.visit != nil && (j.group.bare || j.visit.spoken) }

// text is what people are told when a job runs.
func (j *job) text() string {
	text := j.rev.String() + ": " + j.group.name
	if j.again {
		text += ", once more"
	}
	return text
}

// doubted are the rules whose findings may be due to processes that run at the same time: they may
// share what one of them has locked, and take longer to end.
var doubted = []string{"probe/died", "probe/eof", "probe/failing", "probe/sigterm"}

// repeat does the jobs of a wave again that have doubtful findings, one by one. What came of them
// before does not count.
func (r *run) repeat(ctx context.Context, wave []*job) error {
	if len(wave) == 1 {
		return nil
	}
	for _, j := range wave {
		if !j.doubtful {
			continue
		}
		r.journal.drop(j.sessions, "done once more, without others beside it")
		again := *j
		again.opening, again.again = false, true
		if err := r.do(ctx, []*job{&again}); err != nil {
			return err
		}
	}
	return nil
}

// visit goes through the steps of a job.
func (r *run) visit(ctx context.Context, j *job) {
	v, lost := j.visit, 0
	j.visit = nil
	for _, s := range j.group.steps {
		if v == nil {
			var err error
			if v, err = r.open(ctx, j, j.rev, !j.group.bare); err != nil || !j.group.bare && !v.spoken {
				if err == nil {
					v.link.close()
				}
				return
			}
		}
		s(ctx, v)
		if ctx.Err() != nil {
			break
		}
		if !v.link.alive() {
			v.link.close()
			v = nil
			if lost++; lost > maxReopen {
				return
			}
		}
	}
	if v != nil {
		v.link.close()
	}
}

// maxReopen is how often a group may lose its connection.
const maxReopen = 5

// connectWait is how long to wait for a handshake. Processes that start beside each other start
// more slowly, and one that does not start at all is tried once more, alone.
func (r *run) connectWait(j *job) time.Duration {
	r.mu.Lock()
	defer r.mu.Unlock()
	if j == nil || !j.beside || r.slowest == 0 {
		return r.opts.Connect
	}
	return MaxProcesses*r.slowest + minStart
}

// startWait is how long a process may take, from its start, until it says something. Once one has
// answered, the others need not take much longer.
func (r *run) startWait(j *job) time.Duration {
	r.mu.Lock()
	defer r.mu.Unlock()
	switch {
	case r.slowest == 0:
		return r.opts.Connect
	case j != nil && j.beside:
		return MaxProcesses*r.slowest + minStart
	}
	return min(r.opts.Connect, 4*r.slowest+minStart)
}

// minStart is how long each process may take to start, however soon others have.
const minStart = 10 * time.Second
