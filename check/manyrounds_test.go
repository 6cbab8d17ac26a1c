package check

import (
	"fmt"
	"strings"
	"testing"
)

// sameAsked returns a session with n calls that differ only by their ids. All get an input request
// before any is retried; retry returns the members of the i-th retry.
func sameAsked(n int, retry func(i int) string) Example {
	var b strings.Builder
	b.WriteString(strings.TrimRight(discovered, "\n") + "\n")
	call := func(id int, members string) {
		fmt.Fprintf(&b, `> {"jsonrpc":"2.0","id":%d,"method":"tools/call","params":{"name":"a",%s"_meta":{$version,$client:{"roots":{}}}}}`+"\n", id, members)
	}
	for i := range n {
		call(100+i, "")
	}
	for i := range n {
		fmt.Fprintf(&b, `< {"jsonrpc":"2.0","id":%d,"result":{"resultType":"input_required","requestState":"s%d","inputRequests":{"k%d":{"method":"roots/list"}}}}`+"\n", 100+i, i, i)
	}
	for i := range n {
		call(1000+i, retry(i)+",")
		fmt.Fprintf(&b, `< {"jsonrpc":"2.0","id":%d,"result":{"resultType":"complete","content":[]}}`+"\n", 1000+i)
	}
	return Example{rev20260728, b.String()}
}

// TestManyRounds makes more equal concurrent calls than the checker stores. Each retry is compared
// with the round of its state, and an unknown round causes no finding.
func TestManyRounds(t *testing.T) {
	good := func(i int) string {
		return fmt.Sprintf(`"inputResponses":{"k%d":{"roots":[]}},"requestState":"s%d"`, i, i)
	}
	for _, tt := range []struct {
		name  string
		n     int
		retry func(i int) string
		want  map[string]int
	}{
		{"two", 2, good, map[string]int{}},
		{"as many as are stored", maxPerRequest, good, map[string]int{}},
		{"more", 5 * maxPerRequest, good, map[string]int{}},
		{"a response for another round", 2, func(i int) string {
			return fmt.Sprintf(`"inputResponses":{"k%d":{"roots":[]}},"requestState":"s%d"`, 1-i, i)
		}, map[string]int{"mrtr/answer-missing": 2}},
		{"unknown states", 2, func(i int) string {
			return fmt.Sprintf(`"inputResponses":{"k%d":{"roots":[]}},"requestState":"x"`, i)
		}, map[string]int{"mrtr/state-changed": 2}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			got := map[string]int{}
			for _, f := range find(t, sameAsked(tt.n, tt.retry), nil) {
				if strings.HasPrefix(f.Rule.ID, "mrtr/") {
					got[f.Rule.ID]++
				}
			}
			if fmt.Sprint(got) != fmt.Sprint(tt.want) {
				t.Errorf("found %v, want %v", got, tt.want)
			}
		})
	}
}
