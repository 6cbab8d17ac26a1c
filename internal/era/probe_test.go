package era

import (
	"context"
	"errors"
	"fmt"
	"io"
	"testing"

	"github.com/google/go-cmp/cmp"

	"mcpwire/jsonrpc"
)

// TestJudgeProbe checks that everything that no modern server answers leads to initialize.
//
// Spec: C33
func TestJudgeProbe(t *testing.T) {
	call := func(o jsonrpc.Outcome, err error) error {
		return fmt.Errorf("call server/discover: %w", &jsonrpc.CallError{Err: err, Outcome: o})
	}
	rpc := func(code jsonrpc.Code, data string) error {
		return fmt.Errorf("call: %w", &jsonrpc.Error{Code: code, Message: "no", Data: []byte(data)})
	}
	for _, tt := range []struct {
		name     string
		result   string
		err      error
		want     ProbeResult
		versions []string
	}{
		{name: "DiscoverResult", result: `{"supportedVersions":["2026-07-28","x"]}`, want: ProbeModern, versions: []string{"2026-07-28", "x"}},
		{name: "another result", result: `{}`},
		{name: "a result that is no object", result: `[]`},
		{name: "an InitializeResult", result: `{"protocolVersion":"2025-11-25","capabilities":{}}`},
		{name: "a result that asks for input", result: `{"resultType":"input_required","supportedVersions":["2026-07-28"]}`},
		{name: "-32601", err: rpc(-32601, "")},
		{name: "-32602 with versions", err: rpc(-32602, `{"supported":["2026-07-28"]}`)},
		{name: "-32603", err: rpc(-32603, "")},
		{name: "-32000", err: rpc(-32000, "")},
		{name: "a code of a draft", err: rpc(-32004, `{"supported":["2026-07-28"]}`)},
		{name: "-32020", err: rpc(-32020, ""), want: ProbeModern},
		{name: "-32021", err: rpc(-32021, ""), want: ProbeModern},
		{name: "-32022", err: rpc(-32022, `{"supported":["2025-11-25"],"requested":"2026-07-28"}`), want: ProbeModern, versions: []string{"2025-11-25"}},
		{name: "-32022 in a failed request", err: call(jsonrpc.OutcomeUnprocessed, rpc(-32022, "")), want: ProbeModern},
		{name: "silence", err: context.DeadlineExceeded},
		{name: "the end of the connection", err: io.EOF},
		{name: "rejected", err: call(jsonrpc.OutcomeRejected, errors.New("HTTP 404"))},
		{name: "malformed", err: call(jsonrpc.OutcomeUnknown, jsonrpc.ErrMalformed)},
		{name: "denied", err: call(jsonrpc.OutcomeDenied, errors.New("HTTP 401")), want: ProbeDenied},
		{name: "failed on its way", err: call(jsonrpc.OutcomeUnknown, io.EOF), want: ProbeBusy},
		{name: "overloaded", err: call(jsonrpc.OutcomeUnprocessed, errors.New("HTTP 429")), want: ProbeBusy},
	} {
		got, server, cause := JudgeProbe([]byte(tt.result), tt.err)
		var versions []string
		if server != nil {
			versions = server.Versions
		}
		if diff := cmp.Diff(tt.versions, versions); got != tt.want || diff != "" {
			t.Errorf("%s: got %v, want %v; versions: %s", tt.name, got, tt.want, diff)
		}
		if tt.err != nil && cause != tt.err || tt.err == nil && (cause == nil) != (got == ProbeModern) {
			t.Errorf("%s: cause %v", tt.name, cause)
		}
	}
}
