package main

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"mcpwire/internal/test/upstream"
)

// TestTraces runs a node with a gateway, and checks the spans that it exports, and its metrics.
func TestTraces(t *testing.T) {
	t.Parallel()
	type attribute struct {
		Key   string
		Value struct{ StringValue string }
	}
	type exportRequest struct {
		ResourceSpans []struct {
			Resource   struct{ Attributes []attribute }
			ScopeSpans []struct {
				Spans []struct {
					TraceID, SpanID, ParentSpanID, Name string
					Attributes                          []attribute
				}
			}
		}
	}
	requests := make(chan *exportRequest, 100)
	web := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, 1<<20))
		m := new(exportRequest)
		if err == nil {
			err = json.Unmarshal(body, m)
		}
		if err != nil || r.URL.Path != "/v1/traces" {
			http.Error(w, fmt.Sprint(r.URL.Path, err), http.StatusBadRequest)
			return
		}
		requests <- m
	}))
	defer web.Close()
	file := filepath.Join(t.TempDir(), "gateway.yaml")
	text := fmt.Sprintf("upstreams: {up: {command: [%q], env: {%s: '', %s: '1'}}}\n", os.Args[0], programVariable, upstream.Variable)
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	env := []string{"OTEL_EXPORTER_OTLP_ENDPOINT=" + web.URL, "OTEL_SERVICE_NAME=front"}
	p := startWith(t, env, "--name", "n1", "--listen", "127.0.0.1:0", "--admin", "127.0.0.1:0", "--dir", t.TempDir(), "--gateway", file)
	c := connect(t, p.url, nil, nil)
	if _, err := call(t.Context(), c, "up__where", nil); err != nil {
		t.Error(err)
	}
	c.Close()
	_, metrics := p.get("/metrics")
	for _, want := range []string{
		`mcp_server_operation_duration_seconds_count{gen_ai_operation_name="execute_tool",gen_ai_tool_name="up__where"`,
		`mcp_client_operation_duration_seconds_count{gen_ai_operation_name="execute_tool",gen_ai_tool_name="where"`,
	} {
		if !strings.Contains(metrics, want) {
			t.Errorf("the metrics have no %q in\n%s", want, metrics)
		}
	}
	if status := p.stop(); status != 0 { // it exports the last spans
		t.Errorf("exit status %d", status)
	}
	close(requests)
	type span struct{ Parent, Service, Node, Upstream string }
	names, got := map[string]string{}, map[string]span{}
	spans := map[string]span{}
	for m := range requests {
		for _, r := range m.ResourceSpans {
			about := map[string]string{}
			for _, a := range r.Resource.Attributes {
				about[a.Key] = a.Value.StringValue
			}
			for _, scope := range r.ScopeSpans {
				for _, s := range scope.Spans {
					key := s.TraceID + " "
					names[key+s.SpanID] = s.Name
					d := span{Parent: key + s.ParentSpanID, Service: about["service.name"], Node: about["service.instance.id"]}
					for _, a := range s.Attributes {
						if a.Key == "mcpwire.gateway.upstream" {
							d.Upstream = a.Value.StringValue
						}
					}
					spans[s.Name] = d
				}
			}
		}
	}
	for name, d := range spans {
		if strings.HasPrefix(name, "tools/call") {
			d.Parent = names[d.Parent]
			got[name] = d
		}
	}
	want := map[string]span{
		"tools/call up__where": {Service: "front", Node: "n1"},
		"tools/call where":     {Parent: "tools/call up__where", Service: "front", Node: "n1", Upstream: "up"},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("spans (-want +got):\n%s", diff)
	}
}
