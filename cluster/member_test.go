package cluster

import (
	"bytes"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"time"
)

// testMembers returns the members that the node "me" knows, and its log.
func testMembers() (*members, *bytes.Buffer) {
	log := new(bytes.Buffer)
	n := &Node{id: "me", tenant: "t", opts: NodeOptions{Logger: slog.New(slog.NewTextHandler(log, nil))}}
	n.members = &members{n: n, joined: make(chan struct{}), all: make(map[string]*member), changed: make(chan struct{})}
	return n.members, log
}

// TestBeats checks that a node is gone when it has missed some beats of this node, that it comes
// back with its next beat, and that a node of which nothing is left is forgotten.
func TestBeats(t *testing.T) {
	m, _ := testMembers()
	beats := map[string]uint64{}
	beat := func(id string) {
		beats[id]++
		m.beatLocked(memberRecord{Member{id, ""}, beats[id]})
	}
	_, changed := m.n.Members()
	check := func(when string, want string, wantChange bool) {
		t.Helper()
		list, next := m.n.Members()
		var ids []string
		for _, one := range list {
			ids = append(ids, one.ID)
		}
		if got := strings.Join(ids, " "); got != want {
			t.Errorf("%s: got the members %s, want %s", when, got, want)
		}
		if got := next != changed; got != wantChange {
			t.Errorf("%s: changed %t, want %t", when, got, wantChange)
		}
		if has := (coordinator{m.n}).HasMember("other"); has != slices.Contains(ids, "other") || m.count() != max(len(ids), 1) {
			t.Errorf("%s: has the other one: %t; %d members", when, has, m.count())
		}
		changed = next
	}
	check("at first", "", false)
	beat("me")
	beat("other")
	check("joined", "me other", true)
	for range maxMissed {
		beat("me")
		m.beatLocked(memberRecord{Member{"other", ""}, beats["other"]}) // the same beat again
	}
	check("missed some", "me other", false)
	beat("other")
	check("beats again", "me other", false)
	for range maxMissed {
		beat("me")
	}
	check("missed some again", "me other", false)
	if m.beatLocked(memberRecord{Member{"me", ""}, beats["me"]}); m.all["other"].gone {
		t.Error("the same beat of this node counts twice")
	}
	beat("me")
	check("gone", "me", true)
	beat("me")
	check("still gone", "me", false)
	beat("other")
	check("back", "me other", true)
	for range int(membersTTL / beatInterval) {
		beat("me")
	}
	if check("gone for long", "me", true); m.all["other"] == nil {
		t.Error("the record is forgotten before it expires")
	}
	beat("me")
	if check("expired", "me", false); m.all["other"] != nil {
		t.Error("the record has expired, and is not forgotten")
	}
	for i := range maxMembers {
		beat("node " + time.Duration(i).String())
	}
	if len(m.all) != maxMembers {
		t.Errorf("knows %d nodes, want %d", len(m.all), maxMembers)
	}
}

// TestSee checks the changes of records that a watch yields.
func TestSee(t *testing.T) {
	m, log := testMembers()
	record := func(id string, beat uint64) []byte {
		value, err := encode(&memberRecord{Member{id, ""}, beat})
		if err != nil {
			t.Fatal(err)
		}
		return value
	}
	isJoined := func() bool {
		select {
		case <-m.joined:
			return true
		default:
			return false
		}
	}
	ids := func() string {
		list, _ := m.n.Members()
		var ids []string
		for _, one := range list {
			ids = append(ids, one.ID)
		}
		return strings.Join(ids, " ")
	}
	check := func(when, want string, joined bool) {
		t.Helper()
		if got := ids(); got != want || isJoined() != joined {
			t.Errorf("%s: got the members %q, joined %t, want %q, %t", when, got, isJoined(), want, joined)
		}
	}
	m.restart()
	m.see(Change{Kind: ChangePut, Key: "t.other", Record: Record{Value: record("other", 1)}})
	check("another node", "other", false)
	m.see(Change{Kind: ChangeSynced})
	check("all nodes, but this one", "other", false)
	m.restart()
	m.see(Change{Kind: ChangePut, Key: "t.me", Record: Record{Value: record("me", 1)}})
	check("this node, but not all", "me other", false)
	m.see(Change{Kind: ChangePut, Key: "t.other", Record: Record{Value: record("other", 1)}})
	m.see(Change{Kind: ChangeSynced})
	check("all", "me other", true)
	if log.Len() > 0 {
		t.Errorf("the log has %s", log)
	}
	for _, value := range [][]byte{nil, []byte("x"), record("third", 1)} {
		m.see(Change{Kind: ChangePut, Key: "t.fourth", Record: Record{Value: value}})
	}
	if check("invalid records", "me other", true); strings.Count(log.String(), "the record of a node is invalid") != 3 {
		t.Errorf("the log has %s", log)
	}
	m.see(Change{Kind: ChangeDelete, Key: "t.me"})
	m.see(Change{Kind: ChangeDelete, Key: "t.unknown"})
	check("this node cannot be removed", "me other", true)
	_, before := m.n.Members()
	m.see(Change{Kind: ChangeDelete, Key: "t.other"})
	if _, after := m.n.Members(); before == after {
		t.Error("the removal of a node is no change")
	}
	check("removed", "me", true)
	// A new watch does not yield a node that was removed meanwhile.
	m.see(Change{Kind: ChangePut, Key: "t.other", Record: Record{Value: record("other", 2)}})
	m.restart()
	m.see(Change{Kind: ChangePut, Key: "t.me", Record: Record{Value: record("me", 2)}})
	m.see(Change{Kind: ChangeSynced})
	check("missing in a new watch", "me", true)
	m.see(Change{Kind: ChangePut, Key: "t.other", Record: Record{Value: record("other", 3)}})
	m.all["other"].gone = true
	_, before = m.n.Members()
	m.see(Change{Kind: ChangeDelete, Key: "t.other"})
	if _, after := m.n.Members(); before != after {
		t.Error("the removal of a node that was gone is a change")
	}
}
