package probe

import (
	"context"

	"mcpwire/internal/json/jsonwire"
	"mcpwire/jsonrpc"
	"mcpwire/mcp"
)

// unknownOffer proposes a version that does not exist.
func unknownOffer(ctx context.Context, d *driver) {
	a := d.send(ctx, outgoing{body: request(d.nextID(), mcp.MethodInitialize, d.r.initialize(noSuchVersion)), id: d.lastID()})
	switch {
	case d.connectionEnded(&a, "an unknown version"):
	case a.failed(), a.status >= 400:
		d.report("version-error", &a, "the version %s %s", noSuchVersion, d.outcomeText(&a))
	case d.version(&a) == noSuchVersion:
		d.report("version-echoed", &a, "the server accepted the unknown version %s", noSuchVersion)
	}
	d.offered = d.version(&a)
	// The probe provoked it.
	d.r.recorder.waive(a.event, "lifecycle/version-differs", "lifecycle/version-unknown")
	if d.http != nil {
		d.http.BeginSession(a.header, "")
	}
}

// version returns the version in the response to initialize.
func (d *driver) version(a *reply) string {
	return jsonwire.Text(jsonwire.Lookup(a.result, "protocolVersion"))
}

// completeHandshake completes the handshake that unknownOffer began, so that the steps behind it
// need no other process.
func completeHandshake(ctx context.Context, d *driver) {
	d.job.completed = true
	if d.stale = d.offered != d.rev.String(); !d.stale {
		d.notify(ctx, mcp.NotificationInitialized, nil)
	}
}

func pingFirst(ctx context.Context, d *driver) {
	a := d.call(ctx, mcp.MethodPing, nil)
	d.job.diedFirst = a.state == disconnected
	if !d.connectionEnded(&a, "ping before initialize") && a.failed() {
		d.r.recorder.waive(a.event)
		d.report("ping-first", &a, "it %s", d.outcomeText(&a))
	}
}

func listFirst(ctx context.Context, d *driver) {
	if d.job.diedFirst {
		return // it would exit again, for the same reason
	}
	a := d.call(ctx, mcp.MethodToolsList, nil, func(q *outgoing) {
		if d.stdio != nil && d.stdio.gotMessage {
			q.wait = min(initializeDelay, d.r.opts.Timeout)
		}
	})
	if d.stdio != nil && !d.conn.alive() {
		d.connectionEnded(&a, "tools/list before initialize")
	}
	if a.state == timedOut {
		d.r.recorder.waive(a.requestEvent)
	}
	if a.succeeded() {
		d.r.recorder.waive(a.event)
		d.report("before-initialize", &a, "tools/list got a result")
	}
}

func secondInitialize(ctx context.Context, d *driver) {
	a := d.call(ctx, mcp.MethodInitialize, d.r.initialize(d.rev.String()), func(q *outgoing) { q.wait = min(initializeDelay, d.r.opts.Timeout) })
	if !d.connectionEnded(&a, "a second initialize") && a.succeeded() {
		d.report("second-initialize", &a, "it got a result")
	}
	if a.state == timedOut {
		d.r.recorder.waive(a.requestEvent)
	}
}

// modernRefusal reports an error response that differs from what modern revisions require. status
// is the required HTTP status. It ignores results.
func (d *driver) modernRefusal(a *reply, about string, status int, codes ...jsonrpc.Code) {
	if !d.rev.Modern() || a.state != answered || a.succeeded() {
		return
	}
	switch {
	case !a.failed(codes...):
		d.report("modern-refusal", a, "%s %s; want error %s", about, d.outcomeText(a), codesText(codes))
	case d.http != nil && a.status != status && a.failed(jsonrpc.CodeInvalidParams):
		// Package check knows the status of the other codes.
		d.report("modern-status", a, "%s got HTTP status %d; want %d", about, a.status, status)
	}
}

func unknownVersion(ctx context.Context, d *driver) {
	a := d.call(ctx, mcp.MethodDiscover, object{"_meta": d.r.meta(noSuchVersion)})
	if d.connectionEnded(&a, "an unknown version") {
		return
	}
	// The checks below report it.
	d.r.recorder.waive(a.event, "modern/discover-missing")
	d.modernRefusal(&a, "an unknown version", 400, mcp.CodeUnsupportedProtocolVersion)
	if a.failed(mcp.CodeUnsupportedProtocolVersion) && len(elements(jsonwire.Lookup(a.rpcError.Data, "supported"), 1)) == 0 {
		d.report("modern-refusal", &a, "the error about the version does not list the supported versions")
	}
}

// missingMeta omits required metadata. Over stdio it keeps protocolVersion, because a request
// without it may be a legacy one.
func missingMeta(ctx context.Context, d *driver) {
	without := func(key string) object {
		meta := d.r.meta(d.rev.String())
		delete(meta, key)
		return object{"_meta": meta}
	}
	method := mcp.MethodDiscover
	a := d.call(ctx, method, without(mcp.MetaClientCapabilities))
	if !d.connectionEnded(&a, "a request without clientCapabilities") {
		d.modernRefusal(&a, "a request without clientCapabilities", 400, jsonrpc.CodeInvalidParams)
	}
	if d.http == nil {
		return
	}
	a = d.call(ctx, method, without(mcp.MetaProtocolVersion))
	if !d.connectionEnded(&a, "a request without protocolVersion") {
		d.modernRefusal(&a, "a request without protocolVersion, but with the header", 400, jsonrpc.CodeInvalidParams)
	}
}

func missingInfo(ctx context.Context, d *driver) {
	meta := d.r.meta(d.rev.String())
	delete(meta, mcp.MetaClientInfo)
	a := d.call(ctx, mcp.MethodDiscover, object{"_meta": meta})
	if !d.connectionEnded(&a, "a request without clientInfo") && a.failed() {
		d.report("client-info-required", &a, "server/discover without clientInfo %s", d.outcomeText(&a))
	}
}

func removedMethods(ctx context.Context, d *driver) {
	for _, m := range []struct {
		method string
		params object
	}{
		{mcp.MethodPing, nil},
		{mcp.MethodInitialize, d.r.initialize(d.rev.String())},
		{mcp.MethodSetLevel, object{"level": "emergency"}},
	} {
		if !d.conn.alive() {
			return
		}
		a := d.call(ctx, m.method, m.params)
		about := m.method + " with modern metadata"
		if d.connectionEnded(&a, about) {
			continue
		}
		if a.succeeded() {
			d.r.recorder.waive(a.event) // its form does not matter
			d.report("removed-method", &a, "%s got a result", about)
		}
		d.modernRefusal(&a, about, 404, jsonrpc.CodeMethodNotFound)
	}
}

// subscribe subscribes to changes of the lists and cancels the subscription.
func subscribe(ctx context.Context, d *driver) {
	acknowledged := func(m *jsonrpc.Message) bool { return string(m.Method) == mcp.NotificationAcknowledged }
	filter := object{"toolsListChanged": true, "promptsListChanged": true, "resourcesListChanged": true}
	a := d.call(ctx, mcp.MethodSubscriptionsListen, object{"notifications": filter}, func(q *outgoing) { q.stopAt = acknowledged })
	switch a.state {
	case disconnected:
		d.connectionEnded(&a, mcp.MethodSubscriptionsListen)
		return
	case timedOut:
		d.r.recorder.waive(a.requestEvent)
		d.report("listen", &a, "nothing came in time")
	case answered:
		if a.succeeded() {
			d.report("listen", &a, "it got a result, but was never acknowledged")
			// The server may be overloaded or broken.
		} else if !outage(&a) {
			d.modernRefusal(&a, mcp.MethodSubscriptionsListen, 404, jsonrpc.CodeMethodNotFound)
		}
	}
	if d.stdio != nil && a.state == stoppedEarly {
		d.r.recorder.waive(a.requestEvent)
		d.notify(ctx, mcp.NotificationCancelled, object{"requestId": d.idCount})
		a, _ := d.stillAnswers(ctx)
		d.connectionEnded(&a, "the cancellation of subscriptions/listen")
	}
}
