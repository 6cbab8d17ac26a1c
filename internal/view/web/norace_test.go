//go:build !race

package web_test

const (
	hugeBytes = 50_000_000 // of a string in a hostile capture
	slowRows  = 20_000     // that come while a page does not read
)
