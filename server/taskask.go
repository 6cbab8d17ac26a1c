package server

import (
	"context"
	"errors"
	"sync"

	"mcpwire/internal/jsonwire"
	"mcpwire/jsonrpc"
	"mcpwire/mcp"
)

// A taskRequester asks the client from a call that is, or may become, a task. While it is not one, the era's own asker does it.
type taskRequester struct {
	run   *taskRun
	inner inputRequester

	mu      sync.Mutex
	waiting int // how often askWithTask waits
}

// inputRound returns the asker whose questions go out in the answer to the request; nil if they do not, or there is a task, so that they cannot any more.
func (c *Call) inputRound() *inputRound {
	a := c.inputState().requester
	if t, ok := a.(*taskRequester); ok && !t.run.isTask() {
		a = t.inner
	}
	r, _ := a.(*inputRound)
	return r
}

// ask implements asker.
func (rq *taskRequester) ask(ctx context.Context, requests []*inputRequest) error {
	run := rq.run
	run.mu.Lock()
	if !run.becameTask {
		defer run.mu.Unlock()
		err := rq.inner.ask(ctx, requests)
		run.direct = run.direct || errors.Is(err, ErrInputRequired) // the client answers first; there is no task before
		return err
	}
	run.mu.Unlock()
	if run.task.Core {
		return rq.askWithTask(ctx, requests)
	}
	if r, ok := rq.inner.(*inputRound); ok {
		var err error
		if requests, err = r.applyEarlier(requests); err != nil || len(requests) == 0 {
			return err
		}
	}
	return rq.askInTask(ctx, requests)
}

// applyEarlier hands those questions their answers that were answered in the rounds before there was a task, and returns the others.
func (rd *inputRound) applyEarlier(requests []*inputRequest) (pending []*inputRequest, err error) {
	rd.mu.Lock()
	defer rd.mu.Unlock()
	for _, q := range requests {
		got := rd.answers[q.key]
		if got == nil || !got.unbound && got.digest != q.digest() {
			pending = append(pending, q)
		} else if err := q.decode(got.text); err != nil {
			return nil, q.invalid(err)
		}
	}
	return pending, nil
}

// respond implements asker. A task's result is settled when it is stored.
func (rq *taskRequester) respond(d *inputState, r *jsonrpc.Request, head, out []byte, err error) ([]byte, error) {
	return rq.inner.respond(d, r, head, out, err)
}

// askWithTask asks by requests that name the task, which needs input meanwhile.
func (rq *taskRequester) askWithTask(ctx context.Context, requests []*inputRequest) error {
	for _, q := range requests {
		q.params = withRelatedTask(q.params, rq.run.task.ID)
	}
	err := rq.addWaiting(ctx, 1, mcp.TaskStatusInputRequired)
	if err == nil {
		// The client may not know the task yet: what belongs to it does not go where the client waits for that.
		err = rq.inner.ask(jsonrpc.WithoutRequest(ctx), requests)
	}
	ctx, cancel := cleanupContext(ctx)
	defer cancel()
	if e := rq.addWaiting(ctx, -1, mcp.TaskStatusWorking); err == nil {
		err = e
	}
	return err
}

// addWaiting counts those who wait for the client. The first one, and the last one, give the task its status.
func (rq *taskRequester) addWaiting(ctx context.Context, more int, status mcp.TaskStatus) error {
	rq.mu.Lock()
	defer rq.mu.Unlock()
	others := rq.waiting + min(more, 0)
	rq.waiting += more
	if others > 0 {
		return nil
	}
	_, err := rq.run.update(ctx, func(t *Task) error { t.Status = status; return nil })
	return err
}

// cleanupContext returns a context for what has to be done though ctx may have ended.
func cleanupContext(ctx context.Context) (context.Context, context.CancelFunc) {
	return context.WithTimeout(context.WithoutCancel(ctx), storeTimeout)
}

// askInTask puts the questions into the task and waits until the client has answered them with tasks/update.
func (rq *taskRequester) askInTask(ctx context.Context, requests []*inputRequest) error {
	ctx, cancel := rq.run.call.joinContext(ctx)
	defer cancel()
	t, err := rq.run.update(ctx, func(t *Task) error {
		if t.InputRequests == nil {
			t.InputRequests = make(map[string]mcp.InputRequest)
		}
		for _, q := range requests {
			t.InputRequests[q.key] = mcp.InputRequest{Method: q.method, Params: q.params}
		}
		t.Status = mcp.TaskStatusInputRequired
		return nil
	})
	for err == nil && !allAnswered(t, requests) {
		if t.Ended() {
			return errTaskCanceled
		}
		t, err = rq.run.tasks.opts.Store.Wait(ctx, t.ID, t.Version)
	}
	ctx, cancel = cleanupContext(ctx)
	defer cancel()
	if _, e := rq.run.update(ctx, func(t *Task) error { t.removeRequests(requests); return nil }); err == nil {
		err = e
	}
	if err != nil {
		return err
	}
	for _, q := range requests {
		if err := q.decode(t.InputResponses[q.key]); err != nil {
			return q.invalid(err)
		}
	}
	return nil
}

func allAnswered(t *Task, requests []*inputRequest) bool {
	for _, q := range requests {
		if t.InputResponses[q.key] == nil {
			return false
		}
	}
	return true
}

// removeRequests takes out questions and their answers.
func (t *Task) removeRequests(requests []*inputRequest) {
	for _, q := range requests {
		delete(t.InputRequests, q.key)
		delete(t.InputResponses, q.key)
	}
	t.resumeIfAnswered()
}

// resumeIfAnswered has the task go on if nothing is asked any more.
func (t *Task) resumeIfAnswered() {
	if len(t.InputRequests) == 0 {
		t.Status = mcp.TaskStatusWorking
	}
}

// applyResponses takes the answers to questions that are open, which are not any more then. It passes over others, and fails if one is not usable. It reports
// whether there were any.
func (t *Task) applyResponses(responses []byte) (found bool, err error) {
	members := jsonwire.ObjectMembers(responses)
	for members.Next() {
		key := members.KeyString()
		q, pending := t.InputRequests[key]
		if !pending {
			continue
		}
		if err := checkResponse(featureOf(q.Method), members.Value()); err != nil {
			return false, invalidResponse(key, err)
		}
		if t.InputResponses == nil {
			t.InputResponses = make(map[string]jsonText)
		}
		t.InputResponses[key] = append(jsonText(nil), members.Value()...)
		delete(t.InputRequests, key)
		found = true
	}
	t.resumeIfAnswered()
	return found, nil
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
