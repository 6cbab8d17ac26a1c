package cli

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
		do   func(s *statusLine)
		want string
	}{
		{"a short step", func(s *statusLine) {
			s.step("one")
			time.Sleep(statusDelay / 2)
			s.clear()
			time.Sleep(time.Minute)
		}, ""},
		{"seconds", func(s *statusLine) {
			s.step("one")
			time.Sleep(2 * time.Second)
			synctest.Wait()
			s.clear()
			time.Sleep(time.Minute)
		}, erase + "one" + erase + "one · 1 s" + erase + "one · 2 s" + erase},
		{"steps", func(s *statusLine) {
			s.step("one")
			s.step("two of %d", 3)
			time.Sleep(400 * time.Millisecond)
			s.step("three, which is long")
			s.clear()
			s.clear()
		}, erase + "two of 3" + erase + "three, whic…" + erase},
		{"a step after a clear", func(s *statusLine) {
			s.step("one")
			time.Sleep(statusDelay / 2)
			s.clear()
			s.step("two")
			time.Sleep(statusDelay / 2)
			synctest.Wait()
			s.clear()
		}, ""},
		{"text above", func(s *statusLine) {
			s.print("early\n")
			s.step("one")
			time.Sleep(400 * time.Millisecond)
			s.print("late\n")
			s.clear()
		}, "early\n" + erase + "one" + erase + "late\n" + erase + "one" + erase},
		{"progress", func(s *statusLine) {
			s.step("one")
			s.show("[##--]")
			time.Sleep(time.Minute)
			s.print("note\n")
		}, erase + "[##--]" + erase + "note\n"},
	} {
		synctest.Test(t, func(t *testing.T) {
			var out bytes.Buffer
			tt.do(&statusLine{w: &out, width: 13})
			if got := out.String(); got != tt.want {
				t.Errorf("%s: written %q, want %q", tt.name, got, tt.want)
			}
		})
	}
	none := (&env{stderr: new(bytes.Buffer)}).statusLine()
	if none != nil {
		t.Error("there is a status line without a terminal")
	}
	none.step("nothing")
	none.show("nothing")
	none.clear()
}
