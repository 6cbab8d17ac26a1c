package translate

import "fmt"

// Leaks says what a closed translator still holds that it should not, or counts wrongly; "" is nothing.
func Leaks(t Translator) string {
	switch t := t.(type) {
	case *LegacyClient:
		sum := 0
		for _, made := range t.tasks.made {
			sum += made.size
		}
		if len(t.reqs)+len(t.asks) > 0 || t.kept != sum {
			return fmt.Sprintf("%d requests, %d questions, %d bytes of which %d are of tasks", len(t.reqs), len(t.asks), t.kept, sum)
		}
	case *ModernClient:
		sum := 0
		for _, q := range t.asks {
			sum += q.size
		}
		if len(t.reqs)+len(t.held)+len(t.tokens)+len(t.hidden)+len(t.listens) > 0 || t.kept != sum {
			return fmt.Sprintf("%d requests, %d held, %d tokens, %d hidden, %d listeners, %d bytes of which %d are of questions",
				len(t.reqs), len(t.held), len(t.tokens), len(t.hidden), len(t.listens), t.kept, sum)
		}
	}
	return ""
}

// Left says what a translator holds that nobody uses any more, when there is no request of the client; "" is nothing.
func Left(t Translator) string {
	switch t := t.(type) {
	case *LegacyClient:
		for id, c := range t.calls {
			if id != t.listen.current && id != t.listen.pending {
				return fmt.Sprintf("call %d of %s", id, c.method)
			}
		}
		if n := len(t.listen.waiting); len(t.reqs)+len(t.asks)+len(t.queue)+n > 0 || len(t.later) > 1 {
			return fmt.Sprintf("%d requests, %d questions, %d queued, %d waiting, %d timers", len(t.reqs), len(t.asks), len(t.queue), n, len(t.later))
		}
	case *ModernClient:
		for _, r := range t.errands {
			if r.near != nil || r.farMethod != "tasks/result" {
				return fmt.Sprintf("call %d of %s", r.id, r.farMethod)
			}
		}
		questions := 0
		for _, q := range t.asks {
			if q.task == nil {
				questions++
			}
		}
		if len(t.reqs)+len(t.held)+len(t.tokens)+len(t.hidden)+len(t.listens)+len(t.uris)+len(t.orphans)+len(t.waiting)+questions+len(t.later) > 0 || t.kept != 0 {
			return fmt.Sprintf("%d requests, %d held, %d tokens, %d hidden, %d listeners, %d resources, %d orphans, %d waiting, %d questions, %d timers, %d bytes",
				len(t.reqs), len(t.held), len(t.tokens), len(t.hidden), len(t.listens), len(t.uris), len(t.orphans), len(t.waiting), questions, len(t.later), t.kept)
		}
	}
	return ""
}

// Waiting returns how many requests of the client are kept until there is a server.
func Waiting(t Translator) int {
	switch t := t.(type) {
	case *LegacyClient:
		return len(t.queue)
	case *ModernClient:
		return len(t.waiting)
	}
	return 0
}
