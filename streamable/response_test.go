package streamable

import (
	"net/http/httptest"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"mcpwire/server"
)

// A timedWriter records the time of each write.
type timedWriter struct {
	*httptest.ResponseRecorder
	at []time.Time
}

func (w *timedWriter) Write(b []byte) (int, error) {
	w.at = append(w.at, time.Now())
	return w.ResponseRecorder.Write(b)
}

// TestKeepAliveTimerReused shows that keep-alive comments are sent in time if the response reuses
// memory, and that none is sent after the end.
func TestKeepAliveTimerReused(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := MustHandler(server.MustNew("test", "1", nil), &Options{Timeouts: Timeouts{KeepAlive: 15 * time.Second}})
		defer h.Shutdown(t.Context())
		p := new(response)
		serve := func(d time.Duration) (after []time.Duration) {
			w := &timedWriter{ResponseRecorder: httptest.NewRecorder()}
			began := time.Now()
			p.begin(h, w, httptest.NewRequest("POST", "http://localhost/", nil), acceptedTypes{json: true, stream: true})
			p.startKeepAlive(nil)
			<-time.After(d)
			p.stop()
			if !p.reset() {
				t.Fatal("the response is still in use")
			}
			for _, at := range w.at {
				after = append(after, at.Sub(began))
			}
			return after
		}
		for _, d := range []time.Duration{0, 10 * time.Second, time.Second} {
			if got := serve(d); got != nil {
				t.Errorf("a response of %v had keep-alives after %v", d, got)
			}
		}
		const second = time.Second
		if got, want := serve(50*second), []time.Duration{15 * second, 30 * second, 45 * second}; !slices.Equal(got, want) {
			t.Errorf("keep-alives after %v, want %v", got, want)
		}
		<-time.After(time.Minute) // the timer fires without a response and has no effect
		if got, want := serve(20*second), []time.Duration{15 * second}; !slices.Equal(got, want) {
			t.Errorf("keep-alives after %v, want %v", got, want)
		}
	})
}
