//go:build race

package taphttp_test

const raceEnabled = true
