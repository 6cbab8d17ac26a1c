package client

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"

	"mcpwire/jsonrpc"
)

// A book is a list in pages, by cursor. The first page has the empty cursor.
type book struct {
	pages    map[string]page
	asked    []string
	repeated []string
}

type page struct {
	items []string
	next  *string
	err   error
}

func (b *book) fetch(_ context.Context, cursor *string) ([]string, *string, error) {
	at := "first"
	if cursor != nil {
		at = *cursor
	}
	b.asked = append(b.asked, at)
	p, ok := b.pages[at]
	if !ok {
		return nil, nil, fmt.Errorf("call x: %w", jsonrpc.Errorf(jsonrpc.CodeInvalidParams, "no such cursor"))
	}
	return p.items, p.next, p.err
}

func (b *book) pager(forget func()) *pager[string] {
	return &pager[string]{maxPages: 5, fetch: b.fetch, key: func(s *string) string { return *s }, invalidate: forget, repeated: func(cursor string) { b.repeated = append(b.repeated, cursor) }}
}

func collectAll[T any](seq iter.Seq2[T, error]) (items []T, err error) {
	for item, e := range seq {
		if e != nil {
			if err != nil {
				err = fmt.Errorf("two errors: %w and %w", err, e)
			}
			err = errors.Join(err, e)
			continue
		}
		items = append(items, item)
	}
	return items, err
}

// Spec: C80 C81 C82
func TestPages(t *testing.T) {
	odd := "\x00 \"é\\ \u2028"
	for _, tt := range []struct {
		name  string
		pages map[string]page
		want  []string
		asked []string
		err   error
	}{
		{"one", map[string]page{"first": {items: []string{"a", "b"}}}, []string{"a", "b"}, []string{"first"}, nil},
		{"none", map[string]page{"first": {}}, nil, []string{"first"}, nil},
		{"sizes differ, one page is empty", map[string]page{
			"first": {items: []string{"a"}, next: new("2")},
			"2":     {next: new("3")},
			"3":     {items: []string{"b", "c", "d"}},
		}, []string{"a", "b", "c", "d"}, []string{"first", "2", "3"}, nil},
		{"an empty cursor is a cursor", map[string]page{
			"first": {items: []string{"a"}, next: new("")},
			"":      {items: []string{"b"}},
		}, []string{"a", "b"}, []string{"first", ""}, nil},
		{"cursors are opaque", map[string]page{
			"first": {items: []string{"a"}, next: &odd},
			odd:     {items: []string{"b"}},
		}, []string{"a", "b"}, []string{"first", odd}, nil},
		{"loop", map[string]page{
			"first": {items: []string{"a"}, next: new("x")},
			"x":     {items: []string{"b"}, next: new("y")},
			"y":     {items: []string{"c"}, next: new("x")},
		}, []string{"a", "b", "c"}, []string{"first", "x", "y"}, nil},
		{"an empty cursor on each page", map[string]page{
			"first": {items: []string{"a", "b"}, next: new("")},
			"":      {items: []string{"a", "b"}, next: new("")},
		}, []string{"a", "b"}, []string{"first", ""}, nil},
		{"the same cursor on each page", map[string]page{
			"first": {items: []string{"a"}, next: new("x")},
			"x":     {items: []string{"a", "b"}, next: new("x")},
		}, []string{"a", "b"}, []string{"first", "x"}, nil},
		{"a page that has nothing new", map[string]page{
			"first": {items: []string{"a"}, next: new("x")},
			"x":     {items: []string{"a"}, next: new("y")},
			"y":     {items: []string{"b"}},
		}, []string{"a", "b"}, []string{"first", "x", "y"}, nil},
		{"two items with one key", map[string]page{
			"first": {items: []string{"a", "a"}, next: new("x")},
			"x":     {items: []string{"b", "a"}},
		}, []string{"a", "b"}, []string{"first", "x"}, nil},
		{"too many", map[string]page{
			"first": {next: new("2")}, "2": {next: new("3")}, "3": {next: new("4")}, "4": {next: new("5")}, "5": {next: new("6")}, "6": {},
		}, nil, []string{"first", "2", "3", "4", "5"}, ErrEndlessList},
		{"as many as allowed", map[string]page{
			"first": {next: new("2")}, "2": {next: new("3")}, "3": {next: new("4")}, "4": {next: new("5")}, "5": {items: []string{"e"}},
		}, []string{"e"}, []string{"first", "2", "3", "4", "5"}, nil},
		{"error", map[string]page{
			"first": {items: []string{"a"}, next: new("2")},
			"2":     {err: context.Canceled},
		}, []string{"a"}, []string{"first", "2"}, context.Canceled},
		{"the first page is rejected", nil, nil, []string{"first"}, &jsonrpc.Error{Code: jsonrpc.CodeInvalidParams}},
		{"a cursor is always rejected", map[string]page{
			"first": {items: []string{"a"}, next: new("2")},
		}, []string{"a"}, []string{"first", "2", "first", "2"}, &jsonrpc.Error{Code: jsonrpc.CodeInvalidParams}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			b := &book{pages: tt.pages}
			items := b.pager(func() {}).items(t.Context())
			for range 2 { // an iterator may be used again
				b.asked, b.repeated = nil, nil
				got, err := collectAll(items)
				if !errors.Is(err, tt.err) {
					t.Errorf("error: got %v, want %v", err, tt.err)
				}
				last := tt.asked[len(tt.asked)-1]
				ends := tt.err == nil && b.pages[last].next != nil
				if len(b.repeated) == 1 != ends {
					t.Errorf("reported repeated cursors %q, want one: %v", b.repeated, ends)
				}
				if diff := cmp.Diff(tt.want, got); diff != "" {
					t.Errorf("items (-want +got):\n%s", diff)
				}
				if diff := cmp.Diff(tt.asked, b.asked); diff != "" {
					t.Errorf("requested pages (-want +got):\n%s", diff)
				}
			}
		})
	}
}

func TestPagesRestart(t *testing.T) {
	b := &book{pages: map[string]page{
		"first": {items: []string{"a", "b"}, next: new("old 2")},
		"old 2": {items: []string{"c"}, next: new("old 3")},
	}}
	forgot := 0
	// the server's list has changed by then, and has a new cursor equal to an old one
	items := b.pager(func() {
		forgot++
		b.pages = map[string]page{
			"first": {items: []string{"new", "a"}, next: new("old 2")},
			"old 2": {items: []string{"b", "c", "d", "d"}},
		}
	}).items(t.Context())
	got, err := collectAll(items)
	if err != nil || forgot != 1 {
		t.Errorf("got error %v, restarted %d times, want none and once", err, forgot)
	}
	if diff := cmp.Diff([]string{"a", "b", "c", "new", "d"}, got); diff != "" {
		t.Errorf("items (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff([]string{"first", "old 2", "old 3", "first", "old 2"}, b.asked); diff != "" {
		t.Errorf("requested pages (-want +got):\n%s", diff)
	}
}

func TestPagesOnDemand(t *testing.T) {
	b := &book{pages: map[string]page{"first": {items: []string{"a", "b"}, next: new("2")}, "2": {items: []string{"c"}}}}
	var got []string
	for item, err := range b.pager(nil).items(t.Context()) {
		if err != nil {
			t.Fatal(err)
		}
		if got = append(got, item); item == "b" {
			break
		}
	}
	if want := []string{"first"}; !slices.Equal(b.asked, want) {
		t.Errorf("requested pages: got %q, want %q", b.asked, want)
	}
	if want := []string{"a", "b"}; !slices.Equal(got, want) {
		t.Errorf("items: got %q, want %q", got, want)
	}
}
