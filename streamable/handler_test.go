package streamable

import (
	"bytes"
	"net/http/httptest"
	"testing"

	"mcpwire/server"
)

// TestRevocableSender shows that a request's Sender is invalid after the response, even if its
// memory is reused for another request.
func TestRevocableSender(t *testing.T) {
	var sent bytes.Buffer
	w := httptest.NewRecorder()
	w.Body = &sent
	h := MustHandler(server.MustNew("test", "1", nil), nil)
	defer h.Shutdown(t.Context())
	p := h.newResponse(w, httptest.NewRequest("POST", "http://localhost/", nil), acceptedTypes{stream: true})
	out := &revocableSender{out: p}
	if err := out.Send([]byte(`{"jsonrpc":"2.0","method":"in time"}`)); err != nil {
		t.Error(err)
	}
	out.revoke()
	if err := out.Send([]byte(`{"jsonrpc":"2.0","method":"late"}`)); err == nil || bytes.Contains(sent.Bytes(), []byte("late")) || !bytes.Contains(sent.Bytes(), []byte("in time")) {
		t.Errorf("sent %q, with %v", sent.String(), err)
	}
	p.stop()
}
