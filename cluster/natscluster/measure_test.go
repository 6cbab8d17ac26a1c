package natscluster_test

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"mcpwire/cluster"
)

// BenchmarkWrite measures single writes at one of three nodes in one process, one at a time.
func BenchmarkWrite(b *testing.B) {
	all, _ := openThree(b, b.TempDir())
	value := make([]byte, 512)
	for _, durable := range []bool{false, true} {
		name := map[bool]string{false: "memory", true: "file"}[durable]
		r, err := all[0].Records(b.Context(), "bench-"+name, cluster.RecordsOptions{Durable: durable})
		if err != nil {
			b.Fatal(err)
		}
		l, err := all[0].Log(b.Context(), "bench-"+name, cluster.LogOptions{Durable: durable})
		if err != nil {
			b.Fatal(err)
		}
		revs := make([]uint64, 64)
		for what, write := range map[string]func(i int) error{
			"put": func(i int) (err error) {
				key := i % len(revs)
				revs[key], err = r.Put(b.Context(), fmt.Sprint("k", key), value, revs[key])
				return err
			},
			"append": func(i int) error {
				_, err := l.Append(b.Context(), cluster.LogKey{Group: fmt.Sprint("g", i%64), Name: "n"}, "", value)
				return err
			},
			"get": func(i int) error {
				_, err := r.Get(b.Context(), "k0")
				return err
			},
		} {
			b.Run(name+"/"+what, func(b *testing.B) {
				var times []time.Duration
				i := 0
				for b.Loop() {
					began := time.Now()
					if err := write(i); err != nil {
						b.Fatal(err)
					}
					times = append(times, time.Since(began))
					i++
				}
				slices.Sort(times)
				for _, p := range []int{50, 99} {
					b.ReportMetric(float64(times[len(times)*p/100].Microseconds()), fmt.Sprintf("p%d-µs", p))
				}
			})
		}
	}
}
