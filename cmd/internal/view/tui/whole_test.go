package tui

import (
	"context"
	"fmt"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"mcpwire/capture"
	"mcpwire/cmd/internal/view/watch"
)

// TestWholeFile shows that a filter finds rows that were evicted, and that counts say of how many
// rows they speak.
func TestWholeFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "a"+capture.Suffix)
	f, err := capture.Create(path, &capture.Options{Name: "a"})
	if err != nil {
		t.Fatal(err)
	}
	for i := range 1000 {
		f.Record(&capture.Event{Kind: capture.KindMessage, Dir: capture.ToServer, Data: fmt.Appendf(nil, `{"jsonrpc":"2.0","id":%d,"method":"tools/call","params":{"name":"t%d","arguments":{"q":"term %d"}}}`, i, i%10, i)})
		f.Record(&capture.Event{Kind: capture.KindMessage, Dir: capture.ToClient, Data: fmt.Appendf(nil, `{"jsonrpc":"2.0","id":%d,"result":{"content":[]}}`, i)})
	}
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
	hub := watch.New(&watch.Options{Files: []string{path}, MaxRows: 200, NoRules: true})
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	done := make(chan error)
	go func() { done <- hub.Run(ctx) }()
	defer func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	}()
	feed := hub.Subscribe(0)
	defer feed.Close()
	await := func(holds func() bool) {
		for !holds() {
			if err := feed.Next(ctx, func(*watch.Batch) {}); err != nil {
				t.Fatal(err)
			}
		}
	}
	await(func() bool { s := hub.Sources(); return len(s) == 1 && s[0].State == watch.Complete })
	d := drive(t, hubSource{hub, hub}, nil).size(120, 20)
	defer d.m.table.close()
	if got := d.plain(); !strings.Contains(got, "200 rows, without 800 older ones") {
		t.Errorf("without a filter:\n%s", got)
	}
	for filter, want := range map[string]string{"tool:t3": "100 of 1000", `"term 7"`: "111 of 1000", "tool:*": "1000 of 1000", "nothing": "None of 1000 rows match"} {
		d.run(d.m.table.setFilter(filter))
		await(func() bool { _, busy := d.m.table.sel.SearchProgress(); return !busy })
		if got := d.send(changedMsg{}).plain(); !strings.Contains(got, want) {
			t.Errorf("%s: want %q in\n%s", filter, want, got)
		}
	}
	d.run(d.m.table.setFilter(""))
	if got := d.plain(); !strings.Contains(got, "200 rows, without 800 older ones") {
		t.Errorf("after the filter:\n%s", got)
	}
}
