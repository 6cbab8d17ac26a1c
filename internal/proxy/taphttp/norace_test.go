//go:build !race

package taphttp_test

const raceEnabled = false
