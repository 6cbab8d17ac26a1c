package mock_test

import (
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"mcpwire/cmd/internal/playback/mock"
)

func fault(t *testing.T, text string) *mock.Fault {
	t.Helper()
	f, err := mock.ParseFault(text)
	if err != nil {
		t.Fatal(err)
	}
	return f
}

func TestParseFault(t *testing.T) {
	for _, x := range []struct{ text, problem string }{
		{`tool:search delay=2s`, ``},
		{`drop`, ``},
		{`(tool:a | tool:b) "drop" truncate=10 every=3`, ``},
		{`"status:" exit`, ``},
		{`n:12-20 id=swap first=2 p=0.5`, ``},
		{`tool:a error=-32000: out of memory every=2`, ``},
		{`tool:search`, `missing action`},
		{`tool:search delay`, `missing action`},
		{`delay=soon`, `must be a duration`},
		{`exit=300`, `a status from 0 to 255`},
		{`status=200`, `from 400 to 599`},
		{`id=other`, `want id=swap`},
		{`error=x`, `a code and a message`},
		{`drop now`, `unexpected "now"`},
		{`drop every=0`, `a number of at least 1`},
		{`drop p=0`, `greater than 0`},
		{`-status:ok drop`, `status is unknown`},
		{`(tool:a size>1kB) drop`, `size is unknown`},
		{`finding:x drop`, `finding is unknown`},
		{`(tool:a drop`, `missing action`},
	} {
		_, err := mock.ParseFault(x.text)
		var bad *mock.FaultError
		switch {
		case x.problem == "" && err != nil:
			t.Errorf("%s: %v", x.text, err)
		case x.problem != "" && (!errors.As(err, &bad) || !strings.Contains(err.Error(), x.problem)):
			t.Errorf("%s: got %v, want %q", x.text, err, x.problem)
		}
	}
}

// one returns a recording of one call.
func one(t *testing.T) *mock.Recording {
	return recordingOf(t, after(hello, line{10, "→" + call("1", "a", `{}`, ``)}, line{11, "←" + result("1", "ok")})...)
}

func TestFaultSelection(t *testing.T) {
	for _, x := range []struct {
		text, want string
		seed       uint64
	}{
		{"tool:a error=1:x every=3", "..x..x..x.", 0},
		{"tool:a error=1:x first=2", "xx........", 0},
		{"tool:a error=1:x p=0.5", ".x..xxx...", 1},
		{"tool:a error=1:x p=0.5", "xx.x.x...x", 2},
		{"n:4-5 error=1:x", "xxxxxxxxxx", 0},
		{"n:3 error=1:x", "..........", 0},
	} {
		got := ""
		for range 2 {
			got = ""
			c := dial(t, one(t), &mock.Options{Faults: []*mock.Fault{fault(t, x.text)}, Seed: x.seed})
			c.greet(`{}`)
			for range 10 {
				c.send(call("1", "a", `{}`, ``))
				if strings.Contains(c.next(), `"error"`) {
					got += "x"
				} else {
					got += "."
				}
			}
			c.hangUp()
		}
		if got != x.want {
			t.Errorf("%s with seed %d: got %s, want %s", x.text, x.seed, got, x.want)
		}
	}
}

func TestFaultDelay(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := dial(t, one(t), &mock.Options{Faults: []*mock.Fault{fault(t, "id:7 delay=3s")}})
		c.greet(`{}`)
		begun := time.Now()
		c.send(call("7", "a", `{}`, ``))
		c.send(call("8", "a", `{}`, ``))
		c.want(result("8", "ok"))
		c.want(result("7", "ok"))
		if got := time.Since(begun); got != 3*time.Second {
			t.Errorf("after %v", got)
		}
		c.hangUp()
	})
}

func TestSwappedIDs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := dial(t, one(t), &mock.Options{Faults: []*mock.Fault{fault(t, "id:7 delay=2s"), fault(t, "id:8 id=swap"), fault(t, "id:8 delay=1s")}})
		c.greet(`{}`)
		c.send(call("7", "a", `{}`, ``))
		c.send(call("8", "a", `{}`, ``))
		c.want(result("7", "ok"))
		c.want(result("8", "ok"))
		c.send(call(`"x"`, "a", `{}`, ``))
		c.want(result(`"x"`, "ok"))
		c.hangUp()
	})
}

func TestExit(t *testing.T) {
	c := dial(t, one(t), &mock.Options{Faults: []*mock.Fault{fault(t, "tool:a exit=3")}})
	c.greet(`{}`)
	c.send(call("7", "a", `{}`, ``))
	if _, err := c.in.ReadFrame(); err == nil {
		t.Error("there is an answer")
	}
	var exit *mock.ExitError
	if err := c.hangUp(); !errors.As(err, &exit) || exit.Code != 3 {
		t.Errorf("got %v", err)
	}
}

// post posts a message, and returns the status, the body and the error of reading it.
func post(t *testing.T, url, text string, headers ...string) (status int, body string, err error) {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, url, strings.NewReader(text))
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("Content-Type", "application/json")
	r.Header.Set("Accept", "application/json, text/event-stream")
	for i := 0; i < len(headers); i += 2 {
		r.Header.Set(headers[i], headers[i+1])
	}
	transport := &http.Transport{DisableKeepAlives: true}
	resp, err := transport.RoundTrip(r)
	if err != nil {
		return 0, "", err
	}
	defer resp.Body.Close()
	content, err := io.ReadAll(resp.Body)
	return resp.StatusCode, string(content), err
}

func TestWebFaults(t *testing.T) {
	recording := recordingOf(t,
		line{10, "→" + call("1", "a", `{}`, `,`+meta)},
		line{11, `←{"jsonrpc":"2.0","id":1,"result":{"content":[],"resultType":"complete"}}`},
	)
	answer := `{"jsonrpc":"2.0","id":5,"result":{"content":[],"resultType":"complete"}}`
	for _, x := range []struct {
		fault  string
		status int
		body   string
		breaks bool
	}{
		{"", 200, answer, false},
		{"tool:a status=401", 401, "Unauthorized\n", false},
		{"tool:a truncate=10", 200, answer[:10], true},
		{"tool:a garbage", 200, `{"jsonrpc": garbage ` + answer, false},
		{"tool:a id=swap", 200, strings.Replace(answer, "5", `"5"`, 1), false},
		{"tool:a duplicate", 200, "data: " + answer + "\n\ndata: " + answer + "\n\n", false},
		{"tool:a error=-32000:x", 200, `{"jsonrpc":"2.0","id":5,"error":{"code":-32000,"message":"x"}}`, false},
		{"tool:a exit=1", 0, "", true},
	} {
		t.Run(x.fault, func(t *testing.T) {
			o := &mock.Options{}
			if x.fault != "" {
				o.Faults = []*mock.Fault{fault(t, x.fault)}
			}
			srv := mock.New(recording, o)
			web, err := srv.Handler(nil)
			if err != nil {
				t.Fatal(err)
			}
			ts := httptest.NewServer(web)
			defer ts.Close()
			defer srv.Close()
			defer web.Shutdown(t.Context())
			status, body, err := post(t, ts.URL, call("5", "a", `{}`, `,`+meta), "Mcp-Protocol-Version", "2026-07-28", "Mcp-Method", "tools/call", "Mcp-Name", "a")
			if status != x.status || (err != nil) != x.breaks {
				t.Errorf("status %d, error %v, want %d", status, err, x.status)
			}
			if d := cmp.Diff(x.body, body); d != "" {
				t.Errorf("body (-want +got):\n%s", d)
			}
		})
	}
}
