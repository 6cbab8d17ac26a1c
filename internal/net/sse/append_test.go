package sse_test

import (
	"bytes"
	"errors"
	"strings"
	"testing"
	"time"

	"mcpwire/internal/net/sse"
)

var appendTests = []struct {
	name  string
	event sse.Event
	want  string
}{
	{"nothing", sse.Event{}, "data: \n\n"},
	{"data", sse.Event{Data: []byte("{}")}, "data: {}\n\n"},
	{"everything", sse.Event{Name: "n", ID: []byte("i"), HasID: true, Retry: time.Second, HasRetry: true, Data: []byte("d")}, "event: n\nid: i\nretry: 1000\ndata: d\n\n"},
	{"priming", sse.Event{ID: []byte("s1-0"), HasID: true}, "id: s1-0\ndata: \n\n"},
	{"priming with retry", sse.Event{ID: []byte("s1-0"), HasID: true, Retry: 3 * time.Second, HasRetry: true}, "id: s1-0\nretry: 3000\ndata: \n\n"},
	{"empty id", sse.Event{HasID: true}, "id: \ndata: \n\n"},
	{"id not set", sse.Event{ID: []byte("a\nb"), Retry: -1}, "data: \n\n"},
	{"retry without data", sse.Event{HasRetry: true}, "retry: 0\n\n"},
	{"retry with empty data", sse.Event{HasRetry: true, Data: []byte{}}, "retry: 0\ndata: \n\n"},
	{"retry is rounded up", sse.Event{HasRetry: true, Retry: time.Microsecond}, "retry: 1\n\n"},
	{"longest retry", sse.Event{HasRetry: true, Retry: 1<<63 - 1}, "retry: 9223372036855\n\n"},
	{"name without data", sse.Event{Name: "endpoint"}, "event: endpoint\ndata: \n\n"},
	{"name message is written", sse.Event{Name: "message"}, "event: message\ndata: \n\n"},
	{"spaces are kept", sse.Event{Name: " n", ID: []byte(" i"), HasID: true, Data: []byte(" d")}, "event:  n\nid:  i\ndata:  d\n\n"},
	{"LF", sse.Event{Data: []byte("a\nb\n")}, "data: a\ndata: b\ndata: \n\n"},
	{"CR", sse.Event{Data: []byte("a\rb\r")}, "data: a\ndata: b\ndata: \n\n"},
	{"CRLF", sse.Event{Data: []byte("a\r\nb\r\n")}, "data: a\ndata: b\ndata: \n\n"},
	{"mixed", sse.Event{Data: []byte("\na\n\rb\r\rc\n\n\r\nd")}, "data: \ndata: a\ndata: \ndata: b\ndata: \ndata: c\ndata: \ndata: \ndata: d\n\n"},
	{"fields in data", sse.Event{Data: []byte("x\r\rid: 1\nevent: e\n\ndata: y")}, "data: x\ndata: \ndata: id: 1\ndata: event: e\ndata: \ndata: data: y\n\n"},
}

func TestAppend(t *testing.T) {
	for _, test := range appendTests {
		t.Run(test.name, func(t *testing.T) {
			got, err := sse.Append([]byte("before\n\n"), test.event)
			if err != nil || string(got) != "before\n\n"+test.want {
				t.Errorf("got %q, %v; want %q", got, err, test.want)
			}
		})
	}
}

func TestAppendRejects(t *testing.T) {
	for _, test := range []struct {
		name  string
		event sse.Event
		want  error
	}{
		{"LF in the id", sse.Event{ID: []byte("a\n"), HasID: true}, sse.ErrInvalidID},
		{"CR in the id", sse.Event{ID: []byte("\ra"), HasID: true}, sse.ErrInvalidID},
		{"NUL in the id", sse.Event{ID: []byte("a\x00b"), HasID: true}, sse.ErrInvalidID},
		{"long id", sse.Event{ID: []byte(long), HasID: true}, sse.ErrInvalidID},
		{"LF in the name", sse.Event{Name: "a\ndata: b"}, sse.ErrInvalidName},
		{"CR in the name", sse.Event{Name: "a\r"}, sse.ErrInvalidName},
		{"long name", sse.Event{Name: long}, sse.ErrInvalidName},
		{"negative retry", sse.Event{Retry: -1, HasRetry: true}, sse.ErrInvalidRetry},
	} {
		t.Run(test.name, func(t *testing.T) {
			test.event.Data = []byte("data")
			got, err := sse.Append([]byte("before"), test.event)
			if !errors.Is(err, test.want) || string(got) != "before" {
				t.Errorf("got %q, %v; want %v", got, err, test.want)
			}
		})
	}
}

// TestAppendMessage shows that the short form writes the same bytes as Append.
func TestAppendMessage(t *testing.T) {
	for _, test := range appendTests {
		data := test.event.Data
		want, err := sse.Append(nil, sse.Event{Data: data})
		if err != nil {
			t.Fatal(err)
		}
		if got := sse.AppendMessage(nil, data); !bytes.Equal(got, want) {
			t.Errorf("AppendMessage(%q) = %q, want %q", data, got, want)
		}
	}
}

func TestAppendKeepAlive(t *testing.T) {
	const want = "before\n\n: keep-alive\n\n"
	got := string(sse.AppendKeepAlive([]byte("before\n\n")))
	if got != want {
		t.Errorf("got %q, want %q", got, want)
	}
	if events := readAll(t, strings.NewReader(got[len("before\n\n"):]), 0); len(events) != 1 || events[0] != eof {
		t.Errorf("it reads as %q", events)
	}
}
