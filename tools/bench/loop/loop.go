// Package loop is what a client program in these benchmarks does: it connects
// its library to the server that its flag -server names, by a command line or a
// URL, and then obeys lines on standard input:
//
//	run GOROUTINES MILLISECONDS BYTES
//
// Each is answered with one line of JSON, a [Result].
package loop

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"net/http"
	"os"
	"runtime"
	"slices"
	"strings"
	"sync"
	"time"
)

// Flags are those that each client program has.
type Flags struct {
	Server []string // command line; nil if there is a URL
	URL    string
	Modern bool
}

// ParseFlags reads the command line.
func ParseFlags() (Flags, error) {
	server := flag.String("server", "", "command line of the server, split at spaces, or its URL")
	era := flag.String("era", "legacy", "legacy or modern")
	flag.Parse()
	f := Flags{Modern: *era == "modern"}
	if strings.HasPrefix(*server, "http://") {
		f.URL = *server
	} else {
		f.Server = strings.Fields(*server)
	}
	if f.URL == "" && len(f.Server) == 0 || *era != "legacy" && *era != "modern" {
		return f, errors.New("usage: -server COMMAND|URL -era legacy|modern")
	}
	return f, nil
}

// HTTPClient is for libraries whose own would open and close connections when
// there are many calls at once, because it keeps two idle ones.
func HTTPClient() *http.Client {
	return &http.Client{Transport: &http.Transport{MaxIdleConns: maxCalls, MaxIdleConnsPerHost: maxCalls, DisableCompression: true}}
}

const maxCalls = 128 // at once

// Revision is the one to speak.
func (f Flags) Revision() string {
	if f.Modern {
		return "2026-07-28"
	}
	return "2025-06-18"
}

// A Result is what one line of commands showed. Times are nanoseconds.
type Result struct {
	Calls   int     `json:"calls"`
	NS      int64   `json:"ns"`
	P50     float64 `json:"p50"` // of one call
	P99     float64 `json:"p99"`
	Mallocs float64 `json:"mallocs"` // per call
	Bytes   float64 `json:"bytes"`   // allocated per call
	Version string  `json:"version"` // the revision that was agreed on
}

// An Echo calls the tool echo and returns its text.
type Echo func(ctx context.Context, text string) (string, error)

// Run obeys standard input until it ends.
func Run(version string, echo Echo) error {
	in := bufio.NewScanner(os.Stdin)
	for in.Scan() {
		var goroutines, ms, size int
		if _, err := fmt.Sscanf(in.Text(), "run %d %d %d", &goroutines, &ms, &size); err != nil {
			return fmt.Errorf("command %q: %w", in.Text(), err)
		}
		r, err := measure(goroutines, time.Duration(ms)*time.Millisecond, strings.Repeat("x", size), echo)
		if err != nil {
			return err
		}
		r.Version = version
		if err := json.NewEncoder(os.Stdout).Encode(r); err != nil {
			return err
		}
	}
	return in.Err()
}

// measure calls from so many goroutines for that long.
func measure(goroutines int, d time.Duration, text string, echo Echo) (Result, error) {
	took := make([][]time.Duration, goroutines)
	for i := range took {
		took[i] = make([]time.Duration, 0, 1<<18/goroutines)
	}
	errs := make([]error, goroutines)
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	began := time.Now()
	caller := func(i int) {
		for len(took[i]) < cap(took[i]) && time.Since(began) < d && errs[i] == nil {
			sent := time.Now()
			got, err := echo(context.Background(), text)
			took[i] = append(took[i], time.Since(sent))
			if err == nil && got != text {
				err = fmt.Errorf("wrong answer %.100q", got)
			}
			errs[i] = err
		}
	}
	if goroutines == 1 {
		caller(0)
	} else {
		var wg sync.WaitGroup
		for i := range goroutines {
			wg.Go(func() { caller(i) })
		}
		wg.Wait()
	}
	spent := time.Since(began)
	runtime.ReadMemStats(&after)
	if err := errors.Join(errs...); err != nil {
		return Result{}, err
	}
	all := slices.Concat(took...)
	slices.Sort(all)
	n := len(all)
	return Result{
		Calls: n, NS: spent.Nanoseconds(), P50: float64(all[n/2]), P99: float64(all[n*99/100]),
		Mallocs: float64(after.Mallocs-before.Mallocs) / float64(n), Bytes: float64(after.TotalAlloc-before.TotalAlloc) / float64(n),
	}, nil
}
