package traffic

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func req(id string) string { return `{"jsonrpc":"2.0","id":` + id + `,"method":"m"}` }
func res(id string) string { return `{"jsonrpc":"2.0","id":` + id + `,"result":{}}` }

func TestFrame(t *testing.T) {
	for _, tt := range []struct {
		name, payload, want string
	}{
		{"request", req("1"), "request 0 1"},
		{"space", " " + res(`"a"`) + "\n", `response 0 "a"`},
		{"batch", "[" + req("1") + `,5,{"jsonrpc":"2.0","method":"n"}]`, "batch of 3: request 0 1, notification 2 "},
		{"no message", "{}", "error"},
		{"empty batch", "[]", "batch of 0: error"},
		{"not JSON", "{", "error"},
		{"empty", "", "error"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			var f Frame
			f.Parse([]byte(tt.payload))
			var parts []string
			for _, m := range f.Messages {
				parts = append(parts, fmt.Sprintf("%v %d %s", m.Kind, m.Index, m.ID))
			}
			if f.Err != nil {
				parts = append(parts, "error")
			}
			got := strings.Join(parts, ", ")
			if f.Batch {
				got = fmt.Sprintf("batch of %d: %s", f.Size, got)
			}
			if got != tt.want {
				t.Errorf("got %s, want %s", got, tt.want)
			}
		})
	}
}

func TestFrameOr(t *testing.T) {
	payload, other := []byte(req("1")), []byte(req("2"))
	var parsed, scratch Frame
	parsed.Parse(payload)
	if f := parsed.Or(&scratch, payload); f != &parsed {
		t.Error("the payload was parsed again")
	}
	if f := parsed.Or(&scratch, other); f != &scratch || string(f.Messages[0].ID) != "2" {
		t.Error("another payload was not parsed")
	}
	if f := (*Frame)(nil).Or(&scratch, payload); f != &scratch || string(f.Messages[0].ID) != "1" {
		t.Error("without a frame, the payload was not parsed")
	}
}

func TestFrameAllocatesNothing(t *testing.T) {
	var f Frame
	payload := []byte(req("1"))
	if n := testing.AllocsPerRun(100, func() { f.Parse(payload) }); n != 0 {
		t.Errorf("%v allocations", n)
	}
}

func add(p *Pairer, at Place, payload string) []Message {
	var f Frame
	f.Parse([]byte(payload))
	p.Add(at, f.Messages)
	return f.Messages
}

func TestPairerCalls(t *testing.T) {
	p := NewPairer(0)
	var got []string
	for n, payload := range []string{"[" + req("1") + `,{"jsonrpc":"2.0","method":"n"}]`, res("1"), res("1")} {
		at := Place{N: uint64(n), Dir: "c2s"}
		if n > 0 {
			at.Dir = "s2c"
		}
		for _, m := range add(p, at, payload) {
			s := fmt.Sprint(m.Kind)
			if m.Call != nil {
				s += fmt.Sprintf(" of %d, answered %v", m.Call.N, m.Call.Answered)
			}
			got = append(got, s)
		}
	}
	want := []string{"request of 0, answered false", "notification", "response of 0, answered true", "response"}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// TestPairerBounds shows that requests without a response use limited memory, and that the oldest
// are evicted first.
func TestPairerBounds(t *testing.T) {
	p := NewPairer(100)
	var evicted []uint64
	for n := range 1000 {
		id := fmt.Sprint(n)
		if n >= 500 {
			id = "7"
		}
		add(p, Place{N: uint64(n), Dir: "c2s"}, req(id))
		for _, c := range p.Evicted() {
			evicted = append(evicted, c.N)
		}
		waiting := slices.Collect(p.Pending())
		if len(waiting) > 100 || len(waiting) != p.count || n >= 500 && len(waiting) < 64 {
			t.Fatalf("%d requests wait after %d", len(waiting), n+1)
		}
		if !slices.IsSortedFunc(waiting, func(a, b *Call) int { return int(a.N) - int(b.N) }) {
			t.Fatal("the pending requests are not in order")
		}
	}
	if !slices.IsSorted(evicted[:400]) || evicted[0] != 0 {
		t.Errorf("evicted: %v", evicted[:400])
	}
	for c := range p.Pending() {
		p.remove(c)
	}
	if p.count != 0 || len(p.byID) != 0 || p.oldest != nil || p.newest != nil {
		t.Errorf("%d requests remain, %d ids", p.count, len(p.byID))
	}
}

func BenchmarkPairer(b *testing.B) {
	p := NewPairer(0)
	var f, g Frame
	f.Parse([]byte(req("12345")))
	g.Parse([]byte(res("12345")))
	b.ReportAllocs()
	for b.Loop() {
		p.Add(Place{Dir: "c2s"}, f.Messages)
		p.Add(Place{Dir: "s2c"}, g.Messages)
	}
}
