package show

import (
	"io"
	"os"
	"path/filepath"
	"testing"

	"mcpwire/capture"
	"mcpwire/cmd/internal/cli/sources"
)

// TestShowNumberStops shows that show -n reads as far as the exchange can go on, unless another
// capture in the file may have an event with that number.
func TestShowNumberStops(t *testing.T) {
	one, err := io.ReadAll(bigCapture(2*sources.MaxWindow, "found"))
	if err != nil {
		t.Fatal(err)
	}
	small, err := io.ReadAll(bigCapture(2, "head"))
	if err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct {
		name, file string
		text       []byte
		from, to   uint64
		last       uint64
		events     int
	}{
		{"first", "a", one, 1, 1, 2, 2},
		{"some", "b", one, 11, 14, 14, 4},
		{"last", "c", one, 4*sources.MaxWindow - 1, 4*sources.MaxWindow - 1, 0, 2},
		{"open range", "d", one, 4*sources.MaxWindow - 3, 1<<64 - 1, 0, 4},
		{"two captures", "e", append(small, one...), 1, 1, 0, 4},
	} {
		t.Run(tt.name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), tt.file+capture.Suffix)
			if err := os.WriteFile(path, tt.text, 0o600); err != nil {
				t.Fatal(err)
			}
			s := sources.Source{Paths: []string{path}}
			p, err := pickEvents(t.Context(), s, &showFlags{number: "N", from: tt.from, to: tt.to, raw: true})
			if err != nil {
				t.Fatal(err)
			}
			if p.last != tt.last {
				t.Errorf("the last event to read is %d, want %d", p.last, tt.last)
			}
			events := 0
			for e, err := range s.Events(t.Context()) {
				if err != nil {
					t.Fatal(err)
				}
				if p.events.has(e.Capture, e.N) {
					events++
				}
			}
			if events != tt.events {
				t.Errorf("%d events, want %d", events, tt.events)
			}
		})
	}
}

// TestHasOneHead finds the word across the borders of what is read at once.
func TestHasOneHead(t *testing.T) {
	for _, tt := range []struct {
		name, before string
		want         bool
	}{
		{"one", `{"k":"head"}`, true},
		{"none", "", false},
		{"two", `{"k":"head"}{"k":"head"}`, false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			for at := 1<<20 - 30; at <= 1<<20+1; at++ {
				path := filepath.Join(t.TempDir(), "x"+capture.Suffix)
				text := make([]byte, at, at+100)
				if err := os.WriteFile(path, append(append(text, tt.before...), " and more"...), 0o600); err != nil {
					t.Fatal(err)
				}
				if got := (sources.Source{Paths: []string{path}}).HasOneHead(); got != tt.want {
					t.Fatalf("at %d: %v", at, got)
				}
			}
		})
	}
}
