package stdio

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"
)

// logged returns the output of a handler with the given options.
func logged(t *testing.T, opts *LogOptions, f func(*slog.Logger)) string {
	t.Helper()
	var out bytes.Buffer
	h := NewLogHandler(&out, opts)
	f(slog.New(h))
	if err := h.Close(); err != nil {
		t.Fatal(err)
	}
	return out.String()
}

type panicking struct{}

func (panicking) Error() string { panic("no") }

func TestLogText(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	tests := []struct {
		name string
		log  func(*slog.Logger)
		want string
	}{
		{"error", func(l *slog.Logger) { l.Error("it failed", "error", errors.New("no such file")) }, "Error: it failed error=\"no such file\"\n"},
		{"above error", func(l *slog.Logger) { l.Log(ctx, slog.LevelError+4, "x") }, "Error: x\n"},
		{"warning", func(l *slog.Logger) { l.Warn("x") }, "Warning: x\n"},
		{"info", func(l *slog.Logger) { l.Info("x", "n", 1, "u", uint64(2), "f", 0.5, "b", true, "d", time.Second) }, "Info: x n=1 u=2 f=0.5 b=true d=1s\n"},
		{"debug", func(l *slog.Logger) { l.Debug("x") }, "Debug: x\n"},
		{"trace", func(l *slog.Logger) { l.Log(ctx, LevelTrace, `--> {"id":1,"text":"a\nb"}`) }, "[TRACE] --> {\"id\":1,\"text\":\"a\\nb\"}\n"},
		{"below trace", func(l *slog.Logger) { l.Log(ctx, LevelTrace-1, "x") }, ""},
		{"line breaks", func(l *slog.Logger) { l.Info("a\nError: b\r\u2028c\u0085") }, `Info: a\nError: b\r\u2028c\u0085` + "\n"},
		{"terminal controls", func(l *slog.Logger) { l.Info("\x1b[31mred", "k", "\x1b[0m\u202e") }, `Info: \x1b[31mred k="\x1b[0m\u202e"` + "\n"},
		{"not UTF-8", func(l *slog.Logger) { l.Info("a\xffb", "k", "\xff") }, `Info: a\xffb k="\xff"` + "\n"},
		{"text", func(l *slog.Logger) { l.Info("größe 日本 �") }, "Info: größe 日本 �\n"},
		{"quoting", func(l *slog.Logger) {
			l.Info("x", "a", "", "b", `"`, "c", "d=e", "f", "g h", "i", []byte("j k"), "l", nil)
		},
			`Info: x a="" b="\"" c="d=e" f="g h" i="j k" l=<nil>` + "\n"},
		{"key", func(l *slog.Logger) { l.Info("x", "a\nb", 1) }, `Info: x a\nb=1` + "\n"},
		{"groups", func(l *slog.Logger) {
			l.With("a", 1).WithGroup("g").With("b", 2).Info("x", "c", 3, slog.Group("h", "d", 4), slog.Group("", "e", 5), slog.Group("none"))
		}, "Info: x a=1 g.b=2 g.c=3 g.h.d=4 g.e=5\n"},
		{"empty group", func(l *slog.Logger) { l.WithGroup("").Info("x", "a", 1, slog.Attr{}) }, "Info: x a=1\n"},
		{"time value", func(l *slog.Logger) { l.Info("x", "at", time.Unix(0, 0).UTC()) }, "Info: x at=1970-01-01T00:00:00Z\n"},
		{"panic", func(l *slog.Logger) { l.Info("x", "a", panicking{}, "b", 1) }, "Info: x a=!PANIC b=1\n"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			got := logged(t, &LogOptions{Level: LevelTrace}, tt.log)
			if diff := cmp.Diff(tt.want, got); diff != "" {
				t.Errorf("(-want +got)\n%s", diff)
			}
		})
	}
}

func TestLogDefaultsToInfo(t *testing.T) {
	t.Parallel()
	got := logged(t, nil, func(l *slog.Logger) {
		l.Debug("x")
		l.Info("y")
	})
	if want := "Info: y\n"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}

func TestLogTime(t *testing.T) {
	t.Parallel()
	got := logged(t, &LogOptions{Time: true}, func(l *slog.Logger) { l.Warn("y") })
	stamp, ok := strings.CutPrefix(got, "Warning: ")
	stamp, _, _ = strings.Cut(stamp, " ")
	if _, err := time.Parse(time.RFC3339, stamp); !ok || err != nil {
		t.Errorf("got %q: %v", got, err)
	}
}

func TestLogBoundsLines(t *testing.T) {
	t.Parallel()
	for _, asJSON := range []bool{false, true} {
		for name, log := range map[string]func(*slog.Logger){
			"message":                      func(l *slog.Logger) { l.Info(strings.Repeat("ä", 1<<20)) },
			"attribute":                    func(l *slog.Logger) { l.Info("x", "a", strings.Repeat("ä", 1<<20)) },
			"bytes":                        func(l *slog.Logger) { l.Info("x", "a", make([]byte, 1<<20)) },
			"key":                          func(l *slog.Logger) { l.Info("x", strings.Repeat("ä", 1<<20), 1) },
			"many":                         func(l *slog.Logger) { l.Info("x", manyAttrs()...) },
			"many attributes in WithAttrs": func(l *slog.Logger) { l.With(manyAttrs()...).Info("x") },
			"control":                      func(l *slog.Logger) { l.Info(strings.Repeat("\x01", 1<<20)) },
		} {
			got := logged(t, &LogOptions{JSON: asJSON, MaxLine: 1000}, log)
			if len(got) > 1000 || !strings.HasSuffix(got, "\n") || strings.Count(got, "\n") != 1 || !strings.Contains(got, "cut") || !utf8.ValidString(got) {
				t.Errorf("%s (JSON %t): bad line of %d bytes: %q", name, asJSON, len(got), got)
			}
			if asJSON && !json.Valid([]byte(got)) {
				t.Errorf("%s: not JSON: %s", name, got)
			}
		}
	}
}

func manyAttrs() (attrs []any) {
	for range 5000 {
		attrs = append(attrs, "key", "value")
	}
	return attrs
}

func TestLogJSON(t *testing.T) {
	t.Parallel()
	got := logged(t, &LogOptions{JSON: true, Level: LevelTrace}, func(l *slog.Logger) {
		l.With("a", 1).WithGroup("g").Log(context.Background(), LevelTrace, "x\ny", "b", "c")
	})
	var record map[string]any
	if err := json.Unmarshal([]byte(got), &record); err != nil {
		t.Fatalf("%v in %q", err, got)
	}
	delete(record, "time")
	want := map[string]any{"level": "TRACE", "msg": "x\ny", "a": 1.0, "g": map[string]any{"b": "c"}}
	if diff := cmp.Diff(want, record); diff != "" {
		t.Errorf("(-want +got)\n%s", diff)
	}
}

func TestLogReportsDropped(t *testing.T) {
	t.Parallel()
	for _, asJSON := range []bool{false, true} {
		w := &stuckWriter{free: make(chan struct{})}
		h := NewLogHandler(w, &LogOptions{MaxQueue: 100, JSON: asJSON})
		l := slog.New(h)
		for range 100 {
			l.With("a", "b").Info("a message of some length")
		}
		dropped := h.queue.dropCount()
		if dropped < 90 {
			t.Errorf("%d records were dropped", dropped)
		}
		close(w.free)
		if err := h.Flush(t.Context()); err != nil {
			t.Error(err)
		}
		wantContains(t, "the log", w.buf.String(), "log records were dropped because nobody read the log")
	}
}

// FuzzLogLine checks that any record is written as one printable line of limited length.
func FuzzLogLine(f *testing.F) {
	for _, s := range []string{"", "plain", "a\nb", "\x1b[31m", "\xff", "\u2028\u202e", "a=b \"c\"", strings.Repeat("é", 300), "\x00"} {
		f.Add(s, s, s, 300)
	}
	f.Fuzz(func(t *testing.T, msg, key, value string, limit int) {
		limit = min(max(limit, minMaxLine), 1<<16)
		got := logged(t, &LogOptions{MaxLine: limit}, func(l *slog.Logger) {
			l.WithGroup(key).With(key, value).Error(msg, key, value, "bytes", []byte(value))
		})
		line, ok := strings.CutSuffix(got, "\n")
		if !ok || len(got) > limit || !strings.HasPrefix(line, "Error: ") {
			t.Fatalf("bad line of %d bytes: %q", len(got), got)
		}
		for _, r := range line {
			if r == utf8.RuneError && !strings.Contains(msg+key+value, "\ufffd") || !strconv.IsPrint(r) {
				t.Fatalf("%q in %q", r, line)
			}
		}
	})
}

// TestFlushLog checks that Serve flushes loggers that were made from that of a LogHandler.
func TestFlushLog(t *testing.T) {
	t.Parallel()
	for name, derive := range map[string]func(*slog.Logger) *slog.Logger{
		"itself":     func(l *slog.Logger) *slog.Logger { return l },
		"With":       func(l *slog.Logger) *slog.Logger { return l.With("a", "b") },
		"WithGroup":  func(l *slog.Logger) *slog.Logger { return l.WithGroup("g") },
		"both twice": func(l *slog.Logger) *slog.Logger { return l.With("a", 1).WithGroup("g").With("b", 2).WithGroup("h") },
	} {
		synctest.Test(t, func(t *testing.T) {
			w := &stuckWriter{free: make(chan struct{})}
			l := derive(slog.New(NewLogHandler(w, nil)))
			l.Info("last words", "k", "v")
			time.AfterFunc(time.Second, func() { close(w.free) })
			flushLog(l, time.Minute)
			wantContains(t, name, w.buf.String(), "last words")
		})
	}
}
