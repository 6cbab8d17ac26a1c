package natscluster

import (
	"bytes"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
)

// TestServerLog checks that a repeated warning of the server is logged every ten seconds.
func TestServerLog(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var out bytes.Buffer
		l := &serverLog{log: slog.New(slog.NewTextHandler(&out, &slog.HandlerOptions{ReplaceAttr: func(_ []string, a slog.Attr) slog.Attr {
			if a.Key == slog.MessageKey {
				return a
			}
			return slog.Attr{}
		}})), node: "n1"}
		for i := range 15 {
			for _, address := range []string{"a", "b"} {
				l.Errorf("route (attempt %d): %v", i, errors.New(address))
			}
			<-time.After(time.Second)
		}
		var want []string
		for _, i := range []int{0, 10} {
			for _, address := range []string{"a", "b"} {
				want = append(want, fmt.Sprintf("msg=\"NATS: route (attempt %d): %s\"", i, address))
			}
		}
		if diff := cmp.Diff(want, strings.Split(strings.TrimSpace(out.String()), "\n")); diff != "" {
			t.Errorf("log (-want +got):\n%s", diff)
		}
	})
}
