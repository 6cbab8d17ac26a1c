package check_test

import (
	"path"
	"regexp"
	"slices"
	"strings"
	"testing"

	"mcpwire/capture"
	"mcpwire/check"
)

// A mutation breaks one thing in one event of recorded sessions.
type mutation struct {
	rule string // that has to find it
	on   string // patterns of the names of sessions, see recordings
	// from finds the first event with it, in the form that line writes. What it matches is replaced by to, unless that is one of these:
	//
	//	DROP            the event is left out
	//	TWICE           the event comes twice
	//	BEFORE regexp   the event comes before the first one with that; or AFTER
	//
	// «regexp» stands for the first group of the first event with that.
	from, to string
	also     string // rules that the same break, too: ids, or groups with a slash at the end
}

// notByMutation are rules that no single change to a clean session breaks, with the reason.
var notByMutation = map[string]string{
	"lifecycle/initialize-cancelled": "between initialize and its answer a clean client sends nothing that could become a cancellation",
	"jsonrpc/notification-answered":  "an answer without an id is clean only behind input that cannot be read, which is itself a finding",
}

var quotations = regexp.MustCompile(`«([^»]*)»`)

// expand puts in what «regexp» stands for.
func expand(t *testing.T, s string, lines []string) string {
	return quotations.ReplaceAllStringFunc(s, func(q string) string {
		re := regexp.MustCompile("(?s)" + strings.Trim(q, "«»"))
		for _, l := range lines {
			if m := re.FindStringSubmatch(l); m != nil {
				return m[1]
			}
		}
		t.Fatalf("no event has %s", q)
		return ""
	})
}

// apply returns the events with one thing broken; nil if there is nothing to break.
func (m *mutation) apply(t *testing.T, events []capture.Event) []capture.Event {
	lines := make([]string, len(events))
	for i := range events {
		lines[i] = line(&events[i])
	}
	from := regexp.MustCompile("(?s)" + expand(t, m.from, lines))
	at := slices.IndexFunc(lines, from.MatchString)
	if at < 0 {
		return nil
	}
	broken, e := slices.Clone(events), events[at]
	where, target, _ := strings.Cut(m.to, " ")
	switch where {
	case "DROP":
		return slices.Delete(broken, at, at+1)
	case "TWICE":
		return slices.Insert(broken, at, e)
	case "BEFORE", "AFTER":
		to := slices.IndexFunc(lines, regexp.MustCompile("(?s)"+target).MatchString)
		if to < 0 {
			return nil
		}
		e.T = events[to].T
		if where == "AFTER" {
			to++
		}
		if to > at {
			to--
		}
		return slices.Insert(slices.Delete(broken, at, at+1), to, e)
	}
	match := from.FindStringSubmatchIndex(lines[at])
	text := lines[at][:match[0]] + string(from.ExpandString(nil, expand(t, m.to, lines), lines[at], match)) + lines[at][match[1]:]
	broken[at] = parseLine(text, e)
	return broken
}

// names reports whether a rule is in a list of ids and groups.
func names(list, id string) bool {
	return slices.ContainsFunc(strings.Fields(list), func(s string) bool { return s == id || strings.HasSuffix(s, "/") && strings.HasPrefix(id, s) })
}

func (m *mutation) run(t *testing.T, tape *tape) (applies bool) {
	broken := m.apply(t, tape.events)
	if broken == nil {
		return false
	}
	found := false
	for _, f := range tape.check(broken) {
		found = found || f.Rule.ID == m.rule
		if f.Rule.ID != m.rule && !names(m.also, f.Rule.ID) {
			t.Errorf("%s besides, at event %d: %s", f.Rule.ID, f.Event, f.Message)
		}
	}
	if !found {
		t.Errorf("nothing found")
	}
	return true
}

// TestMutations takes clean sessions, breaks one thing, and wants the rule for it, and nothing but its consequences besides. Every rule has one.
func TestMutations(t *testing.T) {
	all := map[string]*tape{}
	for name, tape := range recordings(t) {
		all[name] = tape
	}
	mutated := map[string]bool{}
	for _, m := range slices.Concat(mutationsOfMessages, mutationsOfSessions, mutationsOfHTTP) {
		mutated[m.rule] = true
		for pattern := range strings.FieldsSeq(m.on) {
			applied := false
			for name, tape := range all {
				if ok, err := path.Match(pattern, name); err != nil || !ok {
					continue
				}
				t.Run(m.rule+" "+name, func(t *testing.T) { applied = m.run(t, tape) || applied })
			}
			if !applied {
				t.Errorf("%s: no session %s has %s", m.rule, pattern, m.from)
			}
		}
	}
	for _, r := range check.Rules() {
		if reason := notByMutation[r.ID]; (reason != "") == mutated[r.ID] {
			t.Errorf("%s: want a mutation, or a reason in notByMutation: there is one: %v, reason: %q", r.ID, mutated[r.ID], reason)
		}
		delete(mutated, r.ID)
	}
	for id := range mutated {
		t.Errorf("there is no rule %s", id)
	}
	for id := range notByMutation {
		if _, ok := check.Lookup(id); !ok {
			t.Errorf("notByMutation: there is no rule %s", id)
		}
	}
}

// TestLines: what mutations are made in is the event, and the way back changes nothing.
func TestLines(t *testing.T) {
	for name, tape := range recordings(t) {
		for _, e := range tape.events {
			if back := parseLine(line(&e), e); line(&back) != line(&e) || back.Kind != e.Kind || back.Exchange != e.Exchange {
				t.Errorf("%s: event %d comes back as\n%s\nand was\n%s", name, e.N, line(&back), line(&e))
			}
		}
	}
}
