package policy

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"mcpwire/auth"
	"mcpwire/cmd/internal/proxy/gateway"
	"mcpwire/internal/test/wait"
)

func testRecord(name string) *gateway.CallRecord {
	return &gateway.CallRecord{
		CallInfo: gateway.CallInfo{Method: "tools/call", Upstream: "files", Name: name},
		Context:  context.Background(), Start: time.Date(2026, 11, 27, 10, 0, 0, 123e6, time.UTC), Duration: 1520 * time.Microsecond, Outcome: gateway.OutcomeOK,
	}
}

func TestAuditLine(t *testing.T) {
	full := testRecord("read")
	full.Context = auth.WithPrincipal(t.Context(), &auth.Principal{Issuer: "https://idp", Subject: "alice", ClientID: "app"})
	full.Code, full.Outcome, full.RequestBytes, full.ResponseBytes = -32602, gateway.OutcomeError, 212, 1034
	full.Arguments = []byte(`{"secret":"xyzzy"}`)
	full.Meta = []byte(`{"traceparent":"00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"}`)
	hostile := testRecord("a\"\n{\u202e\xff" + strings.Repeat("x", 5000))
	hostile.Meta = []byte(`{"traceparent":["00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"]}`)
	for _, tt := range []struct {
		name string
		r    *gateway.CallRecord
		want string
	}{
		{"small", testRecord("read"), `{"time":"2026-11-27T10:00:00.123Z","method":"tools/call","upstream":"files","name":"read","outcome":"ok","ms":1.52}`},
		{"full", full, `{"time":"2026-11-27T10:00:00.123Z","caller":"https://idp alice app","method":"tools/call","upstream":"files","name":"read","outcome":"error","code":-32602,` +
			`"ms":1.52,"request":212,"response":1034,"arguments":"e6f889728110f72ceaef3e898c565b7ecd574f24818f62718b11f57cd689b1dd","trace":"4bf92f3577b34da6a3ce929d0e0e4736"}`},
		{"hostile", hostile, `{"time":"2026-11-27T10:00:00.123Z","method":"tools/call","upstream":"files","name":"a\"\n{\u202e` + "\ufffd" + strings.Repeat("x", 1024-8) + `…","outcome":"ok","ms":1.52}`},
	} {
		t.Run(tt.name, func(t *testing.T) {
			got := string(appendCall(nil, tt.r))
			if !json.Valid([]byte(got)) || strings.Count(got, "\n") != 1 {
				t.Errorf("not a line of JSON: %q", got)
			}
			if diff := cmp.Diff(tt.want+"\n", got); diff != "" {
				t.Errorf("line (-want +got):\n%s", diff)
			}
		})
	}
}

func TestAuditFile(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "audit.jsonl")
	a, err := OpenAudit(AuditOptions{Path: path})
	if err != nil {
		t.Fatal(err)
	}
	a.Record(testRecord("before"))
	wait.Until(t, "the line to be written", func() bool {
		a.outMu.Lock() // wait for the current write
		defer a.outMu.Unlock()
		a.mu.Lock()
		defer a.mu.Unlock()
		return len(a.lines) == 0
	})
	if err := os.Rename(path, path+".1"); err != nil {
		t.Fatal(err)
	}
	if err := a.Reopen(); err != nil {
		t.Fatal(err)
	}
	a.Record(testRecord("after"))
	if err := a.Close(); err != nil {
		t.Fatal(err)
	}
	if err := a.Close(); err != nil {
		t.Errorf("second Close: %v", err)
	}
	if err := a.Reopen(); err != nil {
		t.Errorf("Reopen after Close: %v", err)
	}
	for name, want := range map[string]string{path + ".1": "before", path: "after"} {
		text, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		if got := names(text); !cmp.Equal(got, []string{want}) {
			t.Errorf("%s has %q, want %q", name, got, want)
		}
		if info, err := os.Stat(name); err != nil || runtime.GOOS != "windows" && info.Mode().Perm() != 0o600 {
			t.Errorf("%s: mode %v, %v", name, info.Mode(), err)
		}
	}
	if _, err := OpenAudit(AuditOptions{Path: dir}); err == nil {
		t.Error("OpenAudit opened a folder, want an error")
	}
}

// names returns the member "name" of each line.
func names(lines []byte) (list []string) {
	for line := range bytes.Lines(lines) {
		var r struct {
			Name string
			Lost int
		}
		if err := json.Unmarshal(line, &r); err != nil {
			r.Name = "bad line: " + err.Error()
		} else if r.Lost > 0 {
			r.Name = "lost"
		}
		list = append(list, r.Name)
	}
	return list
}

// A slowDisk is a writer whose writes each need a permit.
type slowDisk struct {
	permits chan struct{}
	mu      sync.Mutex
	got     bytes.Buffer
	// errs are the errors of the next writes, each of which writes half of its text.
	errs []error
}

func (d *slowDisk) Write(b []byte) (int, error) {
	<-d.permits
	d.mu.Lock()
	defer d.mu.Unlock()
	if len(d.errs) > 0 {
		err := d.errs[0]
		d.errs = d.errs[1:]
		n, _ := d.got.Write(b[:len(b)/2])
		return n, err
	}
	return d.got.Write(b)
}

// TestAuditSlowDisk checks that calls do not wait for a blocked disk, and that the log contains the
// number of lost lines.
func TestAuditSlowDisk(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := &slowDisk{permits: make(chan struct{})}
		a, err := OpenAudit(AuditOptions{Writer: d})
		if err != nil {
			t.Fatal(err)
		}
		const n = 20_000 // some 140 bytes each
		for range n {
			a.Record(testRecord("x"))
		}
		lost := a.Lost()
		if lost == 0 || lost == n {
			t.Errorf("got %d of %d lines lost, want some", lost, n)
		}
		close(d.permits)
		synctest.Wait()
		a.Record(testRecord("last"))
		if err := a.Close(); err != nil {
			t.Fatal(err)
		}
		got := names(d.got.Bytes())
		if want := []string{"lost", "last"}; !cmp.Equal(got[len(got)-2:], want) {
			t.Errorf("got %q at the end, want %q", got[len(got)-2:], want)
		}
		if len(got)-1+int(lost) != n+1 {
			t.Errorf("got %d lines and %d lost, want %d together", len(got)-1, lost, n+1)
		}
	})
}

// TestAuditTornLine checks that a line after a failed write begins on a new line.
func TestAuditTornLine(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := &slowDisk{permits: make(chan struct{}), errs: []error{errors.New("disk full"), errors.New("disk full")}}
		close(d.permits)
		var log bytes.Buffer
		a, err := OpenAudit(AuditOptions{Writer: d, Logger: slog.New(slog.NewTextHandler(&log, nil))})
		if err != nil {
			t.Fatal(err)
		}
		const failed, again = "level=ERROR msg=\"the audit log cannot be written; lines are lost\" path=\"\" error=\"disk full\"", "level=INFO msg=\"the audit log is written again\" path=\"\""
		for _, tt := range []struct{ name, log string }{{"first", failed}, {"second", ""}, {"third", again}, {"fourth", ""}} {
			log.Reset()
			a.Record(testRecord(tt.name))
			synctest.Wait()
			_, got, _ := strings.Cut(strings.TrimSpace(log.String()), " ") // without the time
			if got != tt.log {
				t.Errorf("%s: the log has %q, want %q", tt.name, got, tt.log)
			}
		}
		if err := a.Close(); err != nil {
			t.Fatal(err)
		}
		_, rest, _ := strings.Cut(d.got.String(), "\n")
		if got := names([]byte(rest)); !cmp.Equal(got, []string{"lost", "third", "fourth"}) || !strings.Contains(rest, `"lost":2}`) {
			t.Errorf("got %q after the torn line", rest)
		}
		if a.Lost() != 2 {
			t.Errorf("Lost = %d, want 2", a.Lost())
		}
	})
}

// TestAuditBlockedDisk checks that Close returns although a write never does.
func TestAuditBlockedDisk(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := &slowDisk{permits: make(chan struct{})}
		a, err := OpenAudit(AuditOptions{Writer: d})
		if err != nil {
			t.Fatal(err)
		}
		a.Record(testRecord("x"))
		start := time.Now()
		if err := a.Close(); err == nil || time.Since(start) != auditCloseTimeout {
			t.Errorf("got %v after %v", err, time.Since(start))
		}
		close(d.permits)
	})
}

// TestAuditWriter checks that Close does not close a writer that the log did not open.
func TestAuditWriter(t *testing.T) {
	f, err := os.Create(filepath.Join(t.TempDir(), "audit.jsonl"))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	a, err := OpenAudit(AuditOptions{Writer: f})
	if err != nil {
		t.Fatal(err)
	}
	a.Record(testRecord("a"))
	if err := a.Reopen(); err != nil {
		t.Errorf("Reopen: %v", err)
	}
	if err := a.Close(); err != nil {
		t.Fatal(err)
	}
	if _, err := f.WriteString("more"); err != nil {
		t.Errorf("write after Close: %v", err)
	}
	if _, err := OpenAudit(AuditOptions{}); err == nil {
		t.Error("OpenAudit without a file and a writer: got no error")
	}
}
