package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestCharts compares the charts in doc/pictures with those of the tables.
func TestCharts(t *testing.T) {
	results, err := os.ReadFile("../README.md")
	if err != nil {
		t.Fatal(err)
	}
	files, err := charts(string(results))
	if err != nil {
		t.Fatal(err)
	}
	for name, want := range files {
		got, err := os.ReadFile(filepath.Join("../../../doc/pictures", name))
		if err != nil || string(got) != want {
			t.Errorf("%s is out of date (%v): cd tools/bench && go run ./chart", name, err)
		}
	}
}

func TestRead(t *testing.T) {
	const good = "**T**\n\n|  | p50 | p50 / raw |\n|---|--:|--:|\n| raw | 1 µs | 1.00 |\n| mcpwire | 2 µs | 2.00 (1.50–2.50) |\n| other | 9 µs | 9.00 (8–9) |\n\n| x | y | z |\n"
	p := panel{table: "T", column: "p50 / raw", label: "p50", least: "raw"}
	if err := p.read(good); err != nil || len(p.bars) != 3 || p.bars[1] != (bar{"mcpwire", 2, "2 µs"}) {
		t.Errorf("got %+v, %v", p.bars, err)
	}
	for _, bad := range []string{
		"", "**T**\n\n| a |\n|---|\n", strings.Replace(good, "2.00", "fast", 1), strings.Replace(good, "p50 / raw", "ratio", 1), strings.Replace(good, "| 9 µs ", "", 1),
	} {
		p.bars = nil
		if err := p.read(bad); err == nil {
			t.Errorf("accepted %q", bad)
		}
	}
}
