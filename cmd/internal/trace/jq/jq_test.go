package jq

import (
	"context"
	"strings"
	"sync"
	"testing"
)

// endless are programs that cannot be ended by a limit of the library within one step, or that need
// too much memory.
var endless = []string{
	`"\("x"*100000000)"|test("(x*)*y")`,
	`reduce range(1e9) as $i ("a"; .+.) | length > 0`,
	`"x"*1e10 | length > 0`,
	`[range(1e9)]|length>0`,
	`reduce range(60) as $i (.; [.,.]) | tojson | length > 0`,
	`reduce range(60) as $i (.; [.,.]) | . == (reduce range(60) as $i ({}; [.,.]))`,
	`setpath([536870000]; 1) | map(1) | length > 0`,
	`reduce range(60) as $i (7; . * .) | tostring | length > 0`,
	`last(repeat(1))`,
	`def f: f; f`,
	`until(false; .)`,
}

// TestLimits runs programs that would take minutes or gigabytes: each is false, and its worker has
// ended or can be used again.
func TestLimits(t *testing.T) {
	for _, source := range endless {
		w, err := start()
		if err != nil {
			t.Fatal(err)
		}
		isTrue, err := w.evaluate(t.Context(), source, []byte("{}"))
		if isTrue {
			t.Errorf("%s is true", source)
		}
		if err == nil {
			if again, err := w.evaluate(t.Context(), "true", []byte("{}")); err != nil || !again {
				t.Errorf("after %s: got %v, %v, want true", source, again, err)
			}
		}
		w.kill()
		if got := peak(w.cmd.ProcessState); got > 4*maxMemory {
			t.Errorf("%s: the worker took %d MiB", source, got>>20)
		}
	}
}

func mustCompile(t *testing.T, source string) *Program {
	t.Helper()
	p, err := Compile(source)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

func TestTrue(t *testing.T) {
	for _, tt := range []struct {
		program, payload string
		want             bool
	}{
		{".a == 1", `{"a":1}`, true},
		{".a == 1", `{"a":2}`, false},
		{".a == 1", `[{"a":2},{"a":1}]`, true}, // a batch
		{".a", `{"a":null}`, false},
		{"empty", `{}`, false},
		{"error", `{}`, false},
		{"false, true", `{}`, false}, // the first value counts
		{".a > 12345678901234567890", `{"a":12345678901234567891}`, true},
		{"true", `{}{}`, false},
		{"true", `{`, false},
		{"true", ``, false},
		{"true", `"` + strings.Repeat("x", maxPayload) + `"`, false},
		{"true", `"` + strings.Repeat("x", maxPayload-2) + `"`, true},
		{"env | length == 0 and ($ENV | length == 0)", `{}`, true},
	} {
		program := mustCompile(t, tt.program)
		got := program.True(t.Context(), []byte(tt.payload))
		// On a busy machine the largest payload may take longer than maxTotal.
		for tries := 1; len(tt.payload) == maxPayload && !got && tries < 20; tries++ {
			got = program.True(t.Context(), []byte(tt.payload))
		}
		if got != tt.want {
			t.Errorf("%s on %.40s: got %t, want %t", tt.program, tt.payload, got, tt.want)
		}
	}
}

// TestCanceled shows that a filter is false if its context ends before or during the call, and that
// the worker is available at once.
func TestCanceled(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if mustCompile(t, "true").True(ctx, []byte("{}")) {
		t.Error("true after the end of its context")
	}
	ctx, cancel = context.WithCancel(t.Context())
	slow := mustCompile(t, endless[0])
	var calls sync.WaitGroup
	for range 2 * maxWorkers {
		calls.Go(func() {
			if slow.True(ctx, []byte("{}")) {
				t.Error("a canceled filter is true")
			}
		})
	}
	cancel()
	calls.Wait()
	if !mustCompile(t, "true").True(t.Context(), []byte("{}")) {
		t.Error("then a program does not run")
	}
}

// TestKilledWorkers shows that workers that were killed while idle are replaced.
func TestKilledWorkers(t *testing.T) {
	p := mustCompile(t, "true")
	var all []*worker
	for range maxWorkers {
		w, err := start()
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, w)
	}
	for _, w := range all {
		_ = w.cmd.Process.Kill()
		_, _ = w.cmd.Process.Wait()
		putIdle(w)
	}
	for range 2 * maxWorkers {
		if !p.True(t.Context(), []byte("{}")) {
			t.Fatal("it is not true")
		}
	}
}

// TestConcurrent uses more goroutines than there are workers.
func TestConcurrent(t *testing.T) {
	var calls sync.WaitGroup
	for i := range 16 {
		calls.Go(func() {
			p, want := mustCompile(t, ".n == 1"), i%2 == 1
			payload := []byte(`{"n":0}`)
			if want {
				payload = []byte(`{"n":1}`)
			}
			for range 50 {
				if got := p.True(t.Context(), payload); got != want {
					t.Errorf("%s: got %t", payload, got)
				}
			}
		})
	}
	calls.Wait()
}

// TestExpire shows that an idle worker ends, and is not used again.
func TestExpire(t *testing.T) {
	w, err := start()
	if err != nil {
		t.Fatal(err)
	}
	putIdle(w)
	expire(w)
	if w.cmd.ProcessState == nil {
		t.Error("it has not ended")
	}
	if !mustCompile(t, "true").True(t.Context(), []byte("{}")) {
		t.Error("then a program does not run")
	}
}

func BenchmarkTrue(b *testing.B) {
	p, err := Compile(".params.name == \"search\"")
	if err != nil {
		b.Fatal(err)
	}
	payload := []byte(`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"search","arguments":{"q":"x"}}}`)
	for b.Loop() {
		if !p.True(b.Context(), payload) {
			b.Fatal("it is not true")
		}
	}
}
