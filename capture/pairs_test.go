package capture_test

import (
	"bytes"
	"fmt"
	"iter"
	"slices"
	"strings"
	"testing"
	"time"

	"mcpwire/capture"
)

// eventsOf makes events from lines like "c2s 1/4 {…}": direction, session and exchange, message.
// Their numbers and times are 1, 2, 3 …
func eventsOf(lines string) iter.Seq2[*capture.Event, error] {
	return func(yield func(*capture.Event, error) bool) {
		n := 0
		for line := range strings.SplitSeq(strings.TrimSpace(lines), "\n") {
			var e capture.Event
			var dir string
			rest := strings.SplitN(strings.TrimSpace(line), " ", 3)
			dir = rest[0]
			fmt.Sscanf(rest[1], "%d/%d", &e.Session, &e.Exchange)
			n++
			e.Kind, e.Dir, e.N, e.T, e.Data = capture.KindMessage, capture.Dir(dir), uint64(n), time.Duration(n), []byte(rest[2])
			if !yield(&e, nil) {
				return
			}
		}
	}
}

func req(id string) string { return `{"jsonrpc":"2.0","id":` + id + `,"method":"m"}` }
func res(id string) string { return `{"jsonrpc":"2.0","id":` + id + `,"result":{}}` }
func bad(id string) string {
	return `{"jsonrpc":"2.0","id":` + id + `,"error":{"code":1,"message":"x"}}`
}

// TestPairs checks which response belongs to which request: "1-2" is request 1 with response 2,
// "1-" a request without one.
func TestPairs(t *testing.T) {
	for _, tt := range []struct{ name, in, want string }{
		{"plain", "c2s 0/0 " + req("1") + "\ns2c 0/0 " + res("1"), "1-2"},
		{"error", "c2s 0/0 " + req("1") + "\ns2c 0/0 " + bad("1"), "1-2!"},
		{"both ways with one id", "c2s 0/0 " + req("1") + "\ns2c 0/0 " + req("1") + "\nc2s 0/0 " + res("1") + "\ns2c 0/0 " + res("1"), "2-3 1-4"},
		{"id used again", "c2s 0/0 " + req("1") + "\ns2c 0/0 " + res("1") + "\nc2s 0/0 " + req("1") + "\ns2c 0/0 " + res("1"), "1-2 3-4"},
		{"id used twice at once", "c2s 0/0 " + req("1") + "\nc2s 0/0 " + req("1") + "\ns2c 0/0 " + res("1") + "\ns2c 0/0 " + res("1"), "1-3 2-4"},
		{"types of id", "c2s 0/0 " + req("1") + "\nc2s 0/0 " + req(`"1"`) + "\ns2c 0/0 " + res(`"\u0031"`), "2-3 1-"},
		{"big ids", "c2s 0/0 " + req("9007199254740993") + "\nc2s 0/0 " + req("9007199254740992") + "\ns2c 0/0 " + res("9007199254740992"), "2-3 1-"},
		{"no answer", "c2s 0/0 " + req("1") + "\ns2c 0/0 " + bad("null"), "1-"},
		{"stray response", "s2c 0/0 " + res("1") + "\nc2s 0/0 " + req("1"), "2-"},
		{"answered twice", "c2s 0/0 " + req("1") + "\ns2c 0/0 " + res("1") + "\ns2c 0/0 " + res("1"), "1-2"},
		{"exchanges with one id", "c2s 0/1 " + req("1") + "\nc2s 0/2 " + req("1") + "\ns2c 0/2 " + res("1") + "\ns2c 0/1 " + res("1"), "2-3 1-4"},
		{"answer in another exchange", "s2c 0/1 " + req("1") + "\nc2s 0/2 " + res("1"), "1-2"},
		{"ambiguous", "s2c 0/1 " + req("1") + "\ns2c 0/2 " + req("1") + "\nc2s 0/3 " + res("1"), "1- 2-"},
		{"sessions", "c2s 1/0 " + req("1") + "\nc2s 2/0 " + req("1") + "\ns2c 2/0 " + res("1"), "2-3 1-"},
		{"batch", "c2s 0/0 [" + req("1") + "," + req("2") + `,{"jsonrpc":"2.0","method":"n"},5]` + "\ns2c 0/0 [" + res("2") + "," + bad("1") + "]", "1-2 1-2!"},
		{"batch answered one by one", "c2s 0/0 [" + req("1") + "," + req("2") + "]\ns2c 0/0 " + res("2"), "1-2 1-"},
		{"no message", "c2s 0/0 {}\nc2s 0/0 []\nc2s 0/0 5\nc2s 0/0 " + req("1.5"), ""},
		{"long id", "c2s 0/0 " + req(`"`+strings.Repeat("x", 2000)+`"`), ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if got := pairsOf(t, eventsOf(tt.in)); got != tt.want {
				t.Errorf("got %s, want %s", got, tt.want)
			}
		})
	}
}

func pairsOf(t *testing.T, events iter.Seq2[*capture.Event, error]) string {
	t.Helper()
	var got []string
	for x, err := range capture.Pairs(events) {
		if err != nil {
			t.Fatal(err)
		}
		s := fmt.Sprintf("%d-", x.Request.N)
		if x.Response != nil {
			s += fmt.Sprint(x.Response.N)
			if x.Call.ResponseN != x.Response.N || x.Call.Latency != x.Response.T-x.Request.T {
				t.Errorf("call %+v", x.Call)
			}
		}
		if x.Call.Failed {
			s += "!"
		}
		if x.Call.Answered != (x.Response != nil) {
			t.Errorf("answered %v, response %v", x.Call.Answered, x.Response)
		}
		got = append(got, s)
	}
	return strings.Join(got, " ")
}

// TestPairsBounds shows that requests without a response use limited memory.
func TestPairsBounds(t *testing.T) {
	sizes := slices.Repeat([]int{1 << 20}, 70) // more than 64 MiB
	sizes[0]++
	seen, kept := 0, 0
	for x, err := range capture.Pairs(func(yield func(*capture.Event, error) bool) {
		for n, size := range sizes {
			data := []byte(req(fmt.Sprint(n)))
			e := capture.Event{Kind: capture.KindMessage, Dir: capture.ToServer, N: uint64(n), Data: append(data, bytes.Repeat([]byte{' '}, size-len(data))...)}
			if !yield(&e, nil) {
				return
			}
		}
	}) {
		if err != nil || x.Request == nil {
			t.Fatalf("%+v, %v", x, err)
		}
		seen++
		if x.Request.Data != nil {
			kept++
		}
		if x.Request.N == 0 && x.Request.Data != nil {
			t.Error("the payload of a request of more than 1 MiB is kept")
		}
	}
	if seen != 70 || kept != 64 {
		t.Errorf("%d requests seen, %d with their payload, want 70 and 64", seen, kept)
	}
}
