package kit

import (
	"bytes"
	"testing"
	"testing/synctest"
	"time"
)

func TestStatusLine(t *testing.T) {
	const erase = "\r\x1b[K"
	for _, tt := range []struct {
		name string
		do   func(s *StatusLine)
		want string
	}{
		{"a short step", func(s *StatusLine) {
			s.Step("one")
			time.Sleep(statusDelay / 2)
			s.Clear()
			time.Sleep(time.Minute)
		}, ""},
		{"seconds", func(s *StatusLine) {
			s.Step("one")
			time.Sleep(2 * time.Second)
			synctest.Wait()
			s.Clear()
			time.Sleep(time.Minute)
		}, erase + "one" + erase + "one · 1 s" + erase + "one · 2 s" + erase},
		{"steps", func(s *StatusLine) {
			s.Step("one")
			s.Step("two of %d", 3)
			time.Sleep(400 * time.Millisecond)
			s.Step("three, which is long")
			s.Clear()
			s.Clear()
		}, erase + "two of 3" + erase + "three, whic…" + erase},
		{"a step after a clear", func(s *StatusLine) {
			s.Step("one")
			time.Sleep(statusDelay / 2)
			s.Clear()
			s.Step("two")
			time.Sleep(statusDelay / 2)
			synctest.Wait()
			s.Clear()
		}, ""},
		{"text above", func(s *StatusLine) {
			s.print("early\n")
			s.Step("one")
			time.Sleep(400 * time.Millisecond)
			s.print("late\n")
			s.Clear()
		}, "early\n" + erase + "one" + erase + "late\n" + erase + "one" + erase},
		{"progress", func(s *StatusLine) {
			s.Step("one")
			s.show("[##--]")
			time.Sleep(time.Minute)
			s.print("note\n")
		}, erase + "[##--]" + erase + "note\n"},
	} {
		synctest.Test(t, func(t *testing.T) {
			var out bytes.Buffer
			tt.do(&StatusLine{W: &out, width: 13})
			if got := out.String(); got != tt.want {
				t.Errorf("%s: written %q, want %q", tt.name, got, tt.want)
			}
		})
	}
	none := (&Env{Stderr: new(bytes.Buffer)}).StatusLine()
	if none != nil {
		t.Error("there is a status line without a terminal")
	}
	none.Step("nothing")
	none.show("nothing")
	none.Clear()
}
