package cluster

import (
	"fmt"
	"testing"
	"time"

	"mcpwire/streamable"
)

// TestSessionViewIsBounded checks that a view has records up to a limit, does not report that there
// are no others, and removes those that have expired.
func TestSessionViewIsBounded(t *testing.T) {
	v := &sessionView{byKey: make(map[string]*viewedSession), current: true}
	value, err := encode(&sessionRecord{Key: "k", Session: streamable.SavedSession{Initialize: make([]byte, 700<<10)}})
	if err != nil {
		t.Fatal(err)
	}
	expires := time.Now().Add(time.Hour)
	for i := range 100 {
		v.store(fmt.Sprint(i), value, uint64(i+1), expires)
	}
	if v.bytes > maxViewBytes || v.bytes < maxViewBytes/2 {
		t.Errorf("the view has %d bytes, limit %d", v.bytes, maxViewBytes)
	}
	if rec, ok := v.get("0"); rec == nil || !ok {
		t.Error("the first record is missing")
	}
	for _, key := range []string{"99", "unknown"} {
		if rec, ok := v.get(key); rec != nil || ok {
			t.Errorf("the view reports that it has %s", key)
		}
	}
	v.begin() // a new watch, which has yielded nothing yet
	if rec, ok := v.get("unknown"); rec != nil || ok {
		t.Error("the view reports that it is complete after a new watch")
	}
	for _, s := range v.byKey {
		s.expires = time.Now().Add(-time.Second)
	}
	v.swept = time.Time{}
	v.store("new", value, 1000, expires)
	if len(v.byKey) != 1 {
		t.Errorf("the view has %d records, most of them expired", len(v.byKey))
	}
}
