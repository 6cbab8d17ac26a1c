package replay_test

import (
	"bytes"
	"errors"
	"testing"

	"mcpwire/capture"
	"mcpwire/cmd/internal/playback/replay"
	"mcpwire/mcp"
)

func TestRead(t *testing.T) {
	other := uint64(9)
	tests := []struct {
		name string
		file *bytes.Buffer
		opts *replay.ReadOptions
		want error
	}{
		{"empty", record(), nil, replay.ErrNoSession},
		{"only messages of the server", record(s2c(1, answerA)), nil, replay.ErrNoSession},
		{"another session", session(c2s(3, callA)), &replay.ReadOptions{Session: &other}, replay.ErrNoSession},
		{"too many messages", session(c2s(3, callA)), &replay.ReadOptions{MaxBytes: 4 * 256}, replay.ErrTooLarge},
		{"too many bytes", session(c2s(3, callA)), &replay.ReadOptions{MaxBytes: 500}, replay.ErrTooLarge},
		{"enough", session(c2s(3, callA)), &replay.ReadOptions{MaxBytes: 4 * 1024}, nil},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			list, err := replay.Read(t.Context(), capture.NewReader(tt.file, nil).Events(), tt.opts)
			if !errors.Is(err, tt.want) || (err == nil) != (len(list) == 1) {
				t.Errorf("%d recordings, error %v, want %v", len(list), err, tt.want)
			}
		})
	}
}

// TestReadSessions shows that each capture in a file has its own recording, and that modern
// requests over HTTP are one.
func TestReadSessions(t *testing.T) {
	var two bytes.Buffer
	two.Write(session(c2s(3, callA)).Bytes())
	two.Write(session(c2s(3, callB), s2c(4, answerB)).Bytes())
	list, err := replay.Read(t.Context(), capture.NewReader(&two, nil).Events(), nil)
	if err != nil || len(list) != 2 || list[0].Requests() != 2 || list[1].Requests() != 2 {
		t.Errorf("%d recordings, error %v", len(list), err)
	}
	rec := read(t, recordHTTP(t, mcp.Revision20260728))
	if !rec.Modern || rec.Synthetic || rec.Revision != mcp.Revision20260728.String() || rec.Requests() < 5 {
		t.Errorf("got %+v", rec)
	}
}
