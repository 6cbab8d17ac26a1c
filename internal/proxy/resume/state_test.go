package resume

import (
	"fmt"
	"testing"

	"github.com/google/go-cmp/cmp"

	"mcpwire/jsonrpc"
	"mcpwire/mcp"
)

// A session drives a State whose frames are strings and whose owners are names.
type session struct {
	t *testing.T
	State[string, string]
	last int
}

// request records a request and returns its id.
func (s *session) request(owner, method, params string) jsonrpc.ID {
	s.last++
	id := jsonrpc.IntID(int64(s.last))
	frame := jsonrpc.AppendRequest(nil, id, method, []byte(params))
	s.Sent(id, owner, s.parse(frame), string(frame))
	return id
}

// respond records the result of a request, or an error if result is "".
func (s *session) respond(id jsonrpc.ID, result string) {
	if result == "" {
		s.Answered(s.parse(jsonrpc.AppendError(nil, id, jsonrpc.Errorf(jsonrpc.CodeInternalError, "no"), false)))
		return
	}
	s.Answered(s.parse(jsonrpc.AppendResult(nil, id, []byte(result))))
}

func (s *session) parse(frame []byte) *jsonrpc.Message {
	m := new(jsonrpc.Message)
	if err := jsonrpc.Parse(frame, m, 0); err != nil {
		s.t.Fatal(err)
	}
	return m
}

// want compares the messages to a new server with frames, which are methods with their params.
func (s *session) want(frames ...string) {
	s.t.Helper()
	var got []string
	for _, frame := range s.Replay() {
		m := s.parse([]byte(frame))
		got = append(got, string(m.Method)+" "+string(m.Params))
	}
	if diff := cmp.Diff(frames, got); diff != "" {
		s.t.Errorf("Replay (-want +got):\n%s", diff)
	}
}

func uri(s string) string { return fmt.Sprintf(`{"uri":%q}`, s) }

func TestReplay(t *testing.T) {
	s := &session{t: t}
	s.respond(s.request("a", mcp.MethodSetLevel, `{"level":"info"}`), "{}")
	s.want() // without a handshake
	first := s.request("a", mcp.MethodInitialize, `{"n":1}`)
	s.want()
	s.respond(first, `{"capabilities":{"tools":{},"resources":null}}`)
	s.Initialized(`{"jsonrpc":"2.0","method":"notifications/initialized"}`)
	s.respond(s.request("a", mcp.MethodSetLevel, `{"level":"nonsense"}`), "") // rejected
	s.respond(s.request("a", mcp.MethodToolsCall, `{}`), "{}")
	s.respond(s.request("a", mcp.MethodResourcesSubscribe, uri("x:a")), "{}")
	s.respond(s.request("a", mcp.MethodResourcesSubscribe, uri("x:b")), "{}")
	s.respond(s.request("a", mcp.MethodResourcesUnsubscribe, uri("x:a")), "{}")
	s.Forget(s.request("a", mcp.MethodResourcesSubscribe, uri("x:forgotten")))
	s.respond(jsonrpc.IntID(int64(s.last)), "{}")
	s.want(`initialize {"n":1}`, "notifications/initialized ", `logging/setLevel {"level":"info"}`, `resources/subscribe {"uri":"x:b"}`)

	again := s.request("a", mcp.MethodInitialize, `{"n":2}`)
	if key, frame, pending := s.Disconnected(); !pending || key != again.Key() || s.parse([]byte(frame)).Params == nil {
		t.Errorf("Disconnected: %q, %q, %v", key, frame, pending)
	}
	s.respond(again, "{}")
	s.want(`initialize {"n":1}`, "notifications/initialized ", `logging/setLevel {"level":"info"}`, `resources/subscribe {"uri":"x:b"}`)
	if _, result := s.Handshake(); len(ListsOf(result)) != 2 || ListsOf(result)[0].Changed != mcp.NotificationToolsChanged {
		t.Errorf("lists of %s: %v", result, ListsOf(result))
	}
}

func TestOwners(t *testing.T) {
	s := &session{t: t}
	s.respond(s.request("a", mcp.MethodInitialize, `{}`), "{}")
	s.respond(s.request("a", mcp.MethodResourcesSubscribe, uri("x:d/")), "{}")
	s.respond(s.request("b", mcp.MethodResourcesSubscribe, uri("x:d/")), "{}")
	s.respond(s.request("b", mcp.MethodResourcesSubscribe, uri("x:d/e")), "{}")
	if diff := cmp.Diff([]string{"a", "b"}, s.Subscribers("x:d/e#f")); diff != "" {
		t.Errorf("Subscribers (-want +got):\n%s", diff)
	}
	if !s.Unsubscribe("a", "x:d/") || s.Unsubscribe("b", "x:d/") {
		t.Error("Unsubscribe: want true while another owner is subscribed, and false for the last owner")
	}
	pending := s.request("a", mcp.MethodResourcesSubscribe, uri("x:d/"))
	if !s.Unsubscribe("b", "x:d/") {
		t.Error("Unsubscribe = false, want true while another owner's subscription is pending")
	}
	s.respond(pending, "{}")
	if diff := cmp.Diff([]string{"x:d/"}, s.RemoveOwner("a")); diff != "" {
		t.Errorf("RemoveOwner (-want +got):\n%s", diff)
	}
	s.want("initialize {}", `resources/subscribe {"uri":"x:d/e"}`)
}

func TestFull(t *testing.T) {
	s := &session{t: t}
	s.respond(s.request("a", mcp.MethodInitialize, `{}`), "{}")
	for i := range MaxSubscriptions + 1 {
		if s.IsFull() != (i == MaxSubscriptions) {
			t.Fatalf("after %d subscriptions, IsFull is %v", i, s.IsFull())
		}
		s.respond(s.request("a", mcp.MethodResourcesSubscribe, uri(fmt.Sprint("x:", i))), "{}")
	}
	s.respond(s.request("b", mcp.MethodResourcesSubscribe, uri("x:0")), "{}") // a known URI
	if n := len(s.Replay()); n != 1+MaxSubscriptions {
		t.Errorf("got %d frames, want %d", n, 1+MaxSubscriptions)
	}
	if n := len(s.Subscribers("x:0")); n != 2 {
		t.Errorf("got %d subscribers, want 2", n)
	}
}
