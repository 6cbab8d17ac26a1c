package server

import (
	"context"
	"errors"
	"sync"

	"mcpwire/internal/jsonwire"
	"mcpwire/jsonrpc"
	"mcpwire/mcp"
)

// A taskAsker asks the client from a call that is, or may become, a task. While it is not one, the era's own asker does it.
type taskAsker struct {
	run   *taskRun
	other asker

	mu   sync.Mutex
	open int // how often askRelated waits
}

// round returns the asker whose questions go out in the answer to the request; nil if they do not, or there is a task, so that they cannot any more.
func (c *Call) round() *round {
	a := c.dialogue().asker
	if t, ok := a.(*taskAsker); ok && !t.run.isTask() {
		a = t.other
	}
	r, _ := a.(*round)
	return r
}

// ask implements asker.
func (a *taskAsker) ask(ctx context.Context, questions []*question) error {
	run := a.run
	run.mu.Lock()
	if !run.begun {
		defer run.mu.Unlock()
		err := a.other.ask(ctx, questions)
		run.direct = run.direct || errors.Is(err, ErrInputRequired) // the client answers first; there is no task before
		return err
	}
	run.mu.Unlock()
	if run.task.Core {
		return a.askRelated(ctx, questions)
	}
	if r, ok := a.other.(*round); ok {
		var err error
		if questions, err = r.takeEarlier(questions); err != nil || len(questions) == 0 {
			return err
		}
	}
	return a.askStored(ctx, questions)
}

// takeEarlier hands those questions their answers that were answered in the rounds before there was a task, and returns the others.
func (a *round) takeEarlier(questions []*question) (open []*question, err error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, q := range questions {
		got := a.answers[q.key]
		if got == nil || !got.loose && got.digest != q.digest() {
			open = append(open, q)
		} else if err := q.take(got.text); err != nil {
			return nil, q.bad(err)
		}
	}
	return open, nil
}

// settle implements asker. A task's result is settled when it is stored.
func (a *taskAsker) settle(d *dialogue, r *jsonrpc.Request, head, out []byte, err error) ([]byte, error) {
	return a.other.settle(d, r, head, out, err)
}

// askRelated asks by requests that name the task, which needs input meanwhile.
func (a *taskAsker) askRelated(ctx context.Context, questions []*question) error {
	for _, q := range questions {
		q.params = withRelatedTask(q.params, a.run.task.ID)
	}
	err := a.waits(ctx, 1, mcp.TaskStatusInputRequired)
	if err == nil {
		// The client may not know the task yet: what belongs to it does not go where the client waits for that.
		err = a.other.ask(jsonrpc.WithoutRequest(ctx), questions)
	}
	ctx, cancel := afterwards(ctx)
	defer cancel()
	if e := a.waits(ctx, -1, mcp.TaskStatusWorking); err == nil {
		err = e
	}
	return err
}

// waits counts those who wait for the client. The first one, and the last one, give the task its status.
func (a *taskAsker) waits(ctx context.Context, more int, status mcp.TaskStatus) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	alone := a.open + min(more, 0)
	a.open += more
	if alone > 0 {
		return nil
	}
	_, err := a.run.update(ctx, func(t *Task) error { t.Status = status; return nil })
	return err
}

// afterwards returns a context for what has to be done though ctx may have ended.
func afterwards(ctx context.Context) (context.Context, context.CancelFunc) {
	return context.WithTimeout(context.WithoutCancel(ctx), storePatience)
}

// askStored puts the questions into the task and waits until the client has answered them with tasks/update.
func (a *taskAsker) askStored(ctx context.Context, questions []*question) error {
	ctx, cancel := a.run.call.during(ctx)
	defer cancel()
	t, err := a.run.update(ctx, func(t *Task) error {
		if t.InputRequests == nil {
			t.InputRequests = make(map[string]mcp.InputRequest)
		}
		for _, q := range questions {
			t.InputRequests[q.key] = mcp.InputRequest{Method: q.method, Params: q.params}
		}
		t.Status = mcp.TaskStatusInputRequired
		return nil
	})
	for err == nil && !answered(t, questions) {
		if t.Ended() {
			return errTaskStopped
		}
		t, err = a.run.tasks.opts.Store.Wait(ctx, t.ID, t.Version)
	}
	ctx, cancel = afterwards(ctx)
	defer cancel()
	if _, e := a.run.update(ctx, func(t *Task) error { t.close(questions); return nil }); err == nil {
		err = e
	}
	if err != nil {
		return err
	}
	for _, q := range questions {
		if err := q.take(t.InputResponses[q.key]); err != nil {
			return q.bad(err)
		}
	}
	return nil
}

func answered(t *Task, questions []*question) bool {
	for _, q := range questions {
		if t.InputResponses[q.key] == nil {
			return false
		}
	}
	return true
}

// close takes out questions and their answers.
func (t *Task) close(questions []*question) {
	for _, q := range questions {
		delete(t.InputRequests, q.key)
		delete(t.InputResponses, q.key)
	}
	t.resume()
}

// resume has the task go on if nothing is asked any more.
func (t *Task) resume() {
	if len(t.InputRequests) == 0 {
		t.Status = mcp.TaskStatusWorking
	}
}

// answer takes the answers to questions that are open, which are not any more then. It passes over others, and fails if one is not usable. It reports
// whether there were any.
func (t *Task) answer(responses []byte) (any bool, err error) {
	members := jsonwire.ObjectMembers(responses)
	for members.Next() {
		key := members.KeyString()
		q, open := t.InputRequests[key]
		if !open {
			continue
		}
		if err := checkAnswer(featureOf(q.Method), members.Value()); err != nil {
			return false, badResponse(key, err)
		}
		if t.InputResponses == nil {
			t.InputResponses = make(map[string]jsonText)
		}
		t.InputResponses[key] = append(jsonText(nil), members.Value()...)
		delete(t.InputRequests, key)
		any = true
	}
	t.resume()
	return any, nil
}

// featureOf returns a feature that clients are asked for with the method.
func featureOf(method string) ClientFeature {
	switch method {
	case mcp.MethodCreateMessage:
		return Sampling
	case mcp.MethodRootsList:
		return Roots
	}
	return FormElicitation
}

// withRelatedTask returns params, an object or nil, with the task in its _meta.
func withRelatedTask(params []byte, id string) []byte {
	related := append(jsonwire.AppendQuote([]byte(`"`+mcp.MetaRelatedTask+`":{"taskId":`), id), '}')
	dst := []byte(`{"_meta":{`)
	dst = append(dst, related...)
	if params == nil {
		return append(dst, "}}"...)
	}
	var rest []byte
	members := jsonwire.ObjectMembers(params)
	for members.Next() {
		if members.KeyIs("_meta") && members.Value()[0] == '{' {
			dst = appendMembers(dst, members.Value(), mcp.MetaRelatedTask)
			continue
		}
		rest = append(append(append(append(rest, `,"`...), members.RawKey()...), `":`...), members.Value()...)
	}
	return append(append(append(dst, '}'), rest...), '}')
}

// appendMembers appends the members of an object but for one, with a comma before each.
func appendMembers(dst, object []byte, without string) []byte {
	members := jsonwire.ObjectMembers(object)
	for members.Next() {
		if !members.KeyIs(without) {
			dst = append(append(append(append(dst, `,"`...), members.RawKey()...), `":`...), members.Value()...)
		}
	}
	return dst
}
