package translate

import "fmt"

// Leaks describes the state that a closed translator has not released, and wrong counts. It returns
// "" if there is none.
func Leaks(t Translator) string {
	switch t := t.(type) {
	case *LegacyToModern:
		sum := 0
		for _, made := range t.tasks.completed {
			sum += made.size
		}
		if len(t.requests.byKey)+len(t.inputs.pending) > 0 || t.reserved != sum {
			return fmt.Sprintf("%d requests, %d input requests, %d bytes of which %d are of tasks", len(t.requests.byKey), len(t.inputs.pending), t.reserved, sum)
		}
	case *ModernToLegacy:
		sum := 0
		for _, q := range t.inputs.pending {
			sum += q.size
		}
		if len(t.requests.byKey)+len(t.calls.awaiting)+len(t.calls.byToken)+len(t.calls.hidden)+len(t.subscriptions.open) > 0 || t.reserved != sum {
			return fmt.Sprintf("%d requests, %d held, %d tokens, %d hidden, %d listeners, %d bytes of which %d are of input requests",
				len(t.requests.byKey), len(t.calls.awaiting), len(t.calls.byToken), len(t.calls.hidden), len(t.subscriptions.open), t.reserved, sum)
		}
	}
	return ""
}

// Unreleased describes the unused state that a translator keeps while no client request is pending.
// It returns "" if there is none.
func Unreleased(t Translator) string {
	switch t := t.(type) {
	case *LegacyToModern:
		for id, c := range t.calls.byID {
			if id != t.subscription.current && id != t.subscription.pending {
				return fmt.Sprintf("call %d of %s", id, c.method)
			}
		}
		if n := len(t.subscription.waiting); len(t.requests.byKey)+len(t.inputs.pending)+len(t.calls.queue)+n > 0 || len(t.timers) > 1 {
			return fmt.Sprintf("%d requests, %d input requests, %d queued, %d waiting, %d timers", len(t.requests.byKey), len(t.inputs.pending), len(t.calls.queue), n, len(t.timers))
		}
	case *ModernToLegacy:
		for _, r := range t.calls.byID {
			if r.req != nil || r.upstreamMethod != "tasks/result" {
				return fmt.Sprintf("call %d of %s", r.id, r.upstreamMethod)
			}
		}
		inputs := 0
		for _, q := range t.inputs.pending {
			if q.task == nil {
				inputs++
			}
		}
		if len(t.requests.byKey)+len(t.calls.awaiting)+len(t.calls.byToken)+len(t.calls.hidden)+len(t.subscriptions.open)+len(t.subscriptions.resources)+len(t.inputs.unclaimed)+len(t.handshake.waiting)+inputs+len(t.timers) > 0 || t.reserved != 0 {
			return fmt.Sprintf("%d requests, %d held, %d tokens, %d hidden, %d listeners, %d resources, %d orphans, %d waiting, %d input requests, %d timers, %d bytes",
				len(t.requests.byKey), len(t.calls.awaiting), len(t.calls.byToken), len(t.calls.hidden), len(t.subscriptions.open), len(t.subscriptions.resources), len(t.inputs.unclaimed), len(t.handshake.waiting), inputs, len(t.timers), t.reserved)
		}
	}
	return ""
}

// Waiting returns the number of requests of the client that are queued until there is a server.
func Waiting(t Translator) int {
	switch t := t.(type) {
	case *LegacyToModern:
		return len(t.calls.queue)
	case *ModernToLegacy:
		return len(t.handshake.waiting)
	}
	return 0
}
