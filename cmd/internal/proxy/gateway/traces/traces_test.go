package traces

import (
	"compress/gzip"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"mcpwire/cmd/internal/proxy/gateway"
	"mcpwire/internal/rpc/relay"
	"mcpwire/jsonrpc"
	"mcpwire/mcp"
)

// A collector answers export requests with answer, and keeps their bodies.
type collector struct {
	bodies  []string
	headers http.Header
	answer  func(attempt int) (status int, header http.Header, body string)
}

// RoundTrip implements http.RoundTripper.
func (c *collector) RoundTrip(r *http.Request) (*http.Response, error) {
	var body io.Reader = r.Body
	if r.Header.Get("Content-Encoding") == "gzip" {
		var err error
		if body, err = gzip.NewReader(r.Body); err != nil {
			return nil, err
		}
	}
	text, err := io.ReadAll(body)
	if err != nil {
		return nil, err
	}
	c.bodies, c.headers = append(c.bodies, string(text)), r.Header.Clone()
	status, header, answer := http.StatusOK, http.Header{}, "{}"
	if c.answer != nil {
		status, header, answer = c.answer(len(c.bodies))
	}
	if status == 0 {
		<-r.Context().Done()
		return nil, r.Context().Err()
	}
	return &http.Response{StatusCode: status, Header: header, Body: io.NopCloser(strings.NewReader(answer)), Request: r}, nil
}

// newTracer returns a tracer that exports to c, with variables in addition to that of the endpoint.
func newTracer(t *testing.T, c *collector, variables map[string]string) *Tracer {
	t.Helper()
	tr, err := New(&Options{Service: "gw", Version: "1", Transport: "tcp", Getenv: func(name string) string {
		if name == "OTEL_EXPORTER_OTLP_ENDPOINT" {
			return "http://collector:4318/base?key=SECRET"
		}
		return variables[name]
	}})
	if err != nil {
		t.Fatal(err)
	}
	tr.http.Transport = c
	return tr
}

// exported is the part of an export request that the tests read.
type exported struct {
	ResourceSpans []struct {
		Resource struct {
			Attributes []exportedAttribute
		}
		ScopeSpans []struct{ Spans []exportedSpan }
	}
}

type exportedSpan struct {
	TraceID, SpanID, ParentSpanID      string
	Name                               string
	Kind                               int
	StartTimeUnixNano, EndTimeUnixNano string
	Attributes                         []exportedAttribute
	Status                             struct {
		Code    int
		Message string
	}
}

type exportedAttribute struct {
	Key   string
	Value struct{ StringValue string }
}

// texts returns attributes as NAME=VALUE.
func texts(list []exportedAttribute) (all []string) {
	for _, a := range list {
		all = append(all, a.Key+"="+a.Value.StringValue)
	}
	return all
}

// spansOf returns the spans and the resource of export requests.
func spansOf(t *testing.T, bodies []string) (spans []exportedSpan, resource []string) {
	t.Helper()
	for _, body := range bodies {
		var e exported
		if err := json.Unmarshal([]byte(body), &e); err != nil {
			t.Fatalf("%v in %s", err, body)
		}
		for _, r := range e.ResourceSpans {
			resource = texts(r.Resource.Attributes)
			for _, s := range r.ScopeSpans {
				spans = append(spans, s.Spans...)
			}
		}
	}
	return spans, resource
}

const (
	testTrace  = "4bf92f3577b34da6a3ce929d0e0e4736"
	testParent = "00-" + testTrace + "-00f067aa0ba902b7-01"
)

// call makes a call of a tool through the tracer, as a gateway does, and returns the params that the
// upstream gets.
func call(tr *Tracer, params, result string, err error) (sent string) {
	op := gateway.Operation{Method: mcp.MethodToolsCall, ID: jsonrpc.IntID(7), Revision: mcp.LatestRevision, Params: json.RawMessage(params)}
	tr.Observe(context.Background(), &op, func(ctx context.Context, _ json.RawMessage) (json.RawMessage, error) {
		up := gateway.Operation{Upstream: "up", Method: mcp.MethodToolsCall, Params: json.RawMessage(strings.Replace(params, "up__", "", 1))}
		tr.Observe(ctx, &up, func(_ context.Context, params json.RawMessage) (json.RawMessage, error) {
			sent = string(params)
			time.Sleep(time.Millisecond)
			return json.RawMessage(result), err
		})
		return json.RawMessage(result), err
	})
	return sent
}

// TestSpans checks the spans of a call, and the traceparent that the upstream gets.
func TestSpans(t *testing.T) {
	for _, compression := range []string{"none", "gzip"} {
		t.Run(compression, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c := &collector{}
				tr := newTracer(t, c, map[string]string{
					"OTEL_EXPORTER_OTLP_COMPRESSION": compression, "OTEL_EXPORTER_OTLP_HEADERS": "api-key=a%20b,x=y",
					"OTEL_RESOURCE_ATTRIBUTES": "deployment.environment.name=test,service.name=other", "OTEL_SERVICE_NAME": "front",
				})
				sent := call(tr, `{"name":"up__echo","arguments":{"secret":"s"},"_meta":{"traceparent":"`+testParent+`","tracestate":"a=b"}}`, `{"isError":true}`, nil)
				tr.Close(t.Context())
				spans, resource := spansOf(t, c.bodies)
				if len(spans) != 2 {
					t.Fatalf("got %d spans", len(spans))
				}
				up, front := spans[0], spans[1]
				if want := `{"name":"echo","arguments":{"secret":"s"},"_meta":{"traceparent":"00-` + testTrace + "-" + up.SpanID + `-01","tracestate":"a=b"}}`; sent != want {
					t.Errorf("the upstream gets\n%s, want\n%s", sent, want)
				}
				type summary struct {
					Name, Trace, Parent string
					Kind                int
					Attributes          []string
				}
				var got []summary
				for _, s := range spans {
					got = append(got, summary{s.Name, s.TraceID, s.ParentSpanID, s.Kind, texts(s.Attributes)})
					if s.Status.Code != 2 || s.StartTimeUnixNano == "" || s.EndTimeUnixNano <= s.StartTimeUnixNano {
						t.Errorf("status and time of %+v", s)
					}
				}
				want := []summary{
					{"tools/call echo", testTrace, front.SpanID, 3, []string{
						"mcp.method.name=tools/call", "gen_ai.operation.name=execute_tool", "gen_ai.tool.name=echo", "mcpwire.gateway.upstream=up", "error.type=tool_error",
					}},
					{"tools/call up__echo", testTrace, "00f067aa0ba902b7", 2, []string{
						"mcp.method.name=tools/call", "gen_ai.operation.name=execute_tool", "gen_ai.tool.name=up__echo", "mcp.protocol.version=2026-07-28",
						"network.transport=tcp", "jsonrpc.request.id=7", "error.type=tool_error",
					}},
				}
				if diff := cmp.Diff(want, got); diff != "" {
					t.Errorf("spans (-want +got):\n%s", diff)
				}
				if diff := cmp.Diff([]string{"deployment.environment.name=test", "service.name=front", "service.version=1", "telemetry.sdk.language=go", "telemetry.sdk.name=mcpwire", "telemetry.sdk.version=1"}, resource); diff != "" {
					t.Errorf("resource (-want +got):\n%s", diff)
				}
				if c.headers.Get("api-key") != "a b" || c.headers.Get("Content-Type") != "application/json" {
					t.Errorf("headers: %v", c.headers)
				}
				if exported, lost := tr.Counts(); exported != 2 || lost != 0 {
					t.Errorf("exported %d, lost %d", exported, lost)
				}
			})
		})
	}
}

// TestErrors checks how errors are recorded.
func TestErrors(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := &collector{}
		tr := newTracer(t, c, nil)
		for _, err := range []error{
			nil, jsonrpc.Errorf(jsonrpc.CodeInternalError, "%s", strings.Repeat("x", 2*maxAttribute)), fmt.Errorf("up: %w", context.Canceled), context.DeadlineExceeded,
			&relay.RejectedError{Status: 429, Reason: "slow down"}, errors.New("broken"),
		} {
			call(tr, `{"name":"up__echo"}`, `{}`, err)
		}
		tr.Close(t.Context())
		var got []string
		spans, _ := spansOf(t, c.bodies)
		for _, s := range spans {
			if s.Kind == 2 {
				kind := ""
				for _, a := range texts(s.Attributes) {
					if rest, ok := strings.CutPrefix(a, "error.type="); ok {
						kind = rest
					}
				}
				got = append(got, fmt.Sprint(s.Status.Code, " ", kind, " ", len(s.Status.Message)))
			}
		}
		if diff := cmp.Diff([]string{"0  0", "2 -32603 512", "2 cancelled 0", "2 timeout 0", "2 429 9", "2 _OTHER 6"}, got); diff != "" {
			t.Errorf("(-want +got):\n%s", diff)
		}
	})
}

// TestCollector checks what happens if the collector fails.
func TestCollector(t *testing.T) {
	fail := func(status int, header http.Header) func(int) (int, http.Header, string) {
		return func(int) (int, http.Header, string) { return status, header, "no <SECRET>" }
	}
	for _, tt := range []struct {
		name           string
		answer         func(int) (int, http.Header, string)
		attempts       int
		exported, lost uint64
		took           time.Duration
	}{
		{"success", nil, 1, 2, 0, batchDelay},
		{"rejected in part", func(int) (int, http.Header, string) {
			return 200, nil, `{"partialSuccess":{"rejectedSpans":"1","errorMessage":"no"}}`
		}, 1, 1, 1, batchDelay},
		{"no JSON", func(int) (int, http.Header, string) { return 200, nil, "{" }, 1, 2, 0, batchDelay},
		{"later", func(n int) (int, http.Header, string) {
			if n == 1 {
				return 503, http.Header{"Retry-After": {"9"}}, ""
			}
			return 200, nil, "{}"
		}, 2, 2, 0, batchDelay + 9*time.Second},
		{"always unavailable", fail(503, nil), maxAttempts, 0, 2, batchDelay + 7*time.Second},
		{"refused", fail(401, nil), 1, 0, 2, batchDelay},
		{"redirected", fail(302, http.Header{"Location": {"http://other/"}}), 1, 0, 2, batchDelay},
		{"silent", fail(0, nil), maxAttempts, 0, 2, batchDelay + 7*time.Second + maxAttempts*defaultTimeout},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c := &collector{answer: tt.answer}
				tr := newTracer(t, c, nil)
				start := time.Now()
				call(tr, `{"name":"up__echo"}`, `{}`, nil)
				for {
					if exported, lost := tr.Counts(); exported+lost == 2 {
						break
					}
					time.Sleep(time.Millisecond)
				}
				if took := time.Since(start); took < tt.took || took > tt.took+10*time.Millisecond {
					t.Errorf("it took %v, want %v", took, tt.took)
				}
				tr.Close(t.Context())
				if len(c.bodies) != tt.attempts {
					t.Errorf("%d attempts, want %d", len(c.bodies), tt.attempts)
				}
				if exported, lost := tr.Counts(); exported != tt.exported || lost != tt.lost {
					t.Errorf("exported %d, lost %d; want %d and %d", exported, lost, tt.exported, tt.lost)
				}
			})
		})
	}
}

// TestClose checks that Close does not wait for a collector that does not answer.
func TestClose(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tr := newTracer(t, &collector{answer: func(int) (int, http.Header, string) { return 0, nil, "" }}, nil)
		call(tr, `{"name":"up__echo"}`, `{}`, nil)
		start := time.Now()
		ctx, cancel := context.WithTimeout(t.Context(), 3*time.Second)
		defer cancel()
		tr.Close(ctx)
		if took := time.Since(start); took != 3*time.Second {
			t.Errorf("Close took %v", took)
		}
		call(tr, `{"name":"up__echo"}`, `{}`, nil)
		if exported, lost := tr.Counts(); exported != 0 || lost != 4 {
			t.Errorf("exported %d, lost %d", exported, lost)
		}
	})
}

// TestQueue checks that spans that wait are bounded, and that a full batch is sent at once.
func TestQueue(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := &collector{answer: func(int) (int, http.Header, string) { return 0, nil, "" }}
		tr := newTracer(t, c, nil)
		for range maxBatch / 2 {
			call(tr, `{"name":"up__echo"}`, `{}`, nil)
		}
		synctest.Wait()
		if len(c.bodies) != 1 {
			t.Errorf("%d requests after a full batch", len(c.bodies))
		}
		for range maxQueue { // two spans each
			call(tr, `{"name":"up__echo"}`, `{}`, nil)
		}
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		tr.Close(ctx)
		if _, lost := tr.Counts(); lost != maxBatch+2*maxQueue {
			t.Errorf("lost %d of %d", lost, maxBatch+2*maxQueue)
		}
		if len(tr.queue) != 0 {
			t.Errorf("%d spans are left", len(tr.queue))
		}
	})
}

// TestWithTraceparent checks where the traceparent is written.
func TestWithTraceparent(t *testing.T) {
	for in, want := range map[string]string{
		``: ``, `[]`: `[]`, `{}`: `{"_meta":{"traceparent":"T"}}`, `{"a":1}`: `{"_meta":{"traceparent":"T"},"a":1}`, `{"_meta":{}}`: `{"_meta":{"traceparent":"T"}}`,
		`{"_meta":{"b":2},"a":1}`: `{"_meta":{"traceparent":"T","b":2},"a":1}`, `{"_meta":{"traceparent":"X","b":2}}`: `{"_meta":{"traceparent":"T","b":2}}`,
		`{"_meta":null}`: `{"_meta":null}`,
	} {
		if got := string(withTraceparent(json.RawMessage(in), "T")); got != want {
			t.Errorf("%s: got %s, want %s", in, got, want)
		}
	}
}

// TestSampler checks which traces are recorded: without a parent, and with one that is sampled or
// not. A trace that is not recorded keeps the traceparent of the client.
func TestSampler(t *testing.T) {
	unsampled := strings.TrimSuffix(testParent, "1") + "0"
	for _, tt := range []struct {
		name, arg string
		want      string
	}{
		{"", "", "110"}, {"always_on", "", "111"}, {"always_off", "", "000"}, {"parentbased_always_off", "", "010"},
		{"traceidratio", "1", "111"}, {"traceidratio", "0", "000"}, {"parentbased_traceidratio", "0.0", "010"},
	} {
		synctest.Test(t, func(t *testing.T) {
			tr := newTracer(t, &collector{}, map[string]string{"OTEL_TRACES_SAMPLER": tt.name, "OTEL_TRACES_SAMPLER_ARG": tt.arg})
			got := ""
			for _, parent := range []string{"", testParent, unsampled} {
				params := `{"_meta":{"traceparent":"` + parent + `"}}`
				if sent := call(tr, params, `{}`, nil); sent == params {
					got += "0"
				} else {
					got += "1"
				}
			}
			tr.Close(t.Context())
			if got != tt.want {
				t.Errorf("%s %s: got %s, want %s", tt.name, tt.arg, got, tt.want)
			}
		})
	}
}

// TestSettings checks which variables turn the export off, and which are errors.
func TestSettings(t *testing.T) {
	at := func(name, value string) map[string]string {
		return map[string]string{"OTEL_EXPORTER_OTLP_ENDPOINT": "http://c:4318", name: value}
	}
	for _, tt := range []struct {
		variables map[string]string
		want      string
	}{
		{nil, "off"}, {at("OTEL_SDK_DISABLED", "TRUE"), "off"}, {at("OTEL_TRACES_EXPORTER", "none"), "off"},
		{at("", ""), "http://c:4318/v1/traces"}, {at("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "https://u:SECRET@d/x?k=SECRET"), "https://d/x"},
		{at("OTEL_EXPORTER_OTLP_PROTOCOL", "http/protobuf"), "http://c:4318/v1/traces"},
		{at("OTEL_EXPORTER_OTLP_PROTOCOL", "grpc"), "error OTEL_EXPORTER_OTLP_PROTOCOL"},
		{at("OTEL_TRACES_EXPORTER", "zipkin"), "error OTEL_TRACES_EXPORTER"}, {at("OTEL_EXPORTER_OTLP_ENDPOINT", "c:4318"), "error OTEL_EXPORTER_OTLP_ENDPOINT"},
		{at("OTEL_EXPORTER_OTLP_HEADERS", "SECRET"), "error OTEL_EXPORTER_OTLP_HEADERS"}, {at("OTEL_EXPORTER_OTLP_TIMEOUT", "1s"), "error OTEL_EXPORTER_OTLP_TIMEOUT"},
		{at("OTEL_EXPORTER_OTLP_COMPRESSION", "zip"), "error OTEL_EXPORTER_OTLP_COMPRESSION"}, {at("OTEL_EXPORTER_OTLP_CERTIFICATE", "/nonexistent"), "error OTEL_EXPORTER_OTLP_CERTIFICATE"},
		{at("OTEL_RESOURCE_ATTRIBUTES", "a"), "error OTEL_RESOURCE_ATTRIBUTES"}, {at("OTEL_TRACES_SAMPLER", "jaeger_remote"), "error OTEL_TRACES_SAMPLER"},
	} {
		tr, err := New(&Options{Getenv: func(name string) string { return tt.variables[name] }})
		got := "off"
		switch {
		case err != nil:
			if strings.Contains(err.Error(), "SECRET") {
				t.Errorf("%v has a secret", err)
			}
			got = "error " + strings.FieldsFunc(err.Error(), func(r rune) bool { return !slices.Contains([]rune("_"), r) && (r < 'A' || r > 'Z') })[0]
		case tr != nil:
			got = tr.Endpoint()
			tr.Close(t.Context())
		}
		if got != tt.want {
			t.Errorf("%v: got %q, want %q", tt.variables, got, tt.want)
		}
	}
	if _, err := New(&Options{Getenv: func(name string) string {
		return map[string]string{"OTEL_EXPORTER_OTLP_ENDPOINT": "http://c", "OTEL_TRACES_SAMPLER": "traceidratio", "OTEL_TRACES_SAMPLER_ARG": "2"}[name]
	}}); err == nil {
		t.Error("a ratio of 2 is accepted")
	}
}
