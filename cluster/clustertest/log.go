package clustertest

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	"mcpwire/cluster"
	"mcpwire/internal/base/coordination"
)

// log opens the log that most tests use at both nodes. Its limit is 8 entries with one key.
func (s *suite) log() (a, b cluster.Log) {
	s.Helper()
	o := cluster.LogOptions{MaxEntries: 8, MaxAge: 10 * time.Minute}
	a, err := s.a.Log(s.ctx, "suite-log", o)
	if err != nil {
		s.Fatal(err)
	}
	b, err = s.b.Log(s.ctx, "suite-log", o)
	if err != nil {
		s.Fatal(err)
	}
	return a, b
}

func (s *suite) logKey() cluster.LogKey {
	return cluster.LogKey{Group: s.key(), Name: "n-" + rand.Text()}
}

// append appends entries and returns their sequence numbers.
func (s *suite) append(l cluster.Log, key cluster.LogKey, values ...string) (seqs []uint64) {
	s.Helper()
	for _, v := range values {
		seqs = append(seqs, s.appendID(l, key, "", v))
	}
	return seqs
}

// appendID appends an entry with an id. A log may be unavailable for a moment, such as while it
// elects a leader: then it appends again.
func (s *suite) appendID(l cluster.Log, key cluster.LogKey, id, value string) (seq uint64) {
	s.Helper()
	s.eventually(func() string {
		data := []byte(value)
		var err error
		seq, err = l.Append(s.ctx, key, id, data)
		switch {
		case errors.Is(err, cluster.ErrUnavailable):
			return err.Error()
		case err != nil:
			s.Fatalf("append %q: %v", value, err)
		}
		clear(data)
		return ""
	})
	return seq
}

// wantEntries waits until Read returns the values, and returns their sequence numbers.
func (s *suite) wantEntries(l cluster.Log, key cluster.LogKey, after uint64, want ...string) {
	s.Helper()
	s.eventually(func() string {
		var got []string
		for from := after; ; {
			entries, err := l.Read(s.ctx, key, from, 3)
			if err != nil {
				return fmt.Sprintf("read after %d: %v", from, err)
			}
			if len(entries) == 0 {
				break
			}
			if len(entries) > 3 {
				s.Fatalf("read returned %d entries, limit 3", len(entries))
			}
			for _, e := range entries {
				if e.Seq <= from {
					s.Fatalf("entry %d follows %d", e.Seq, from)
				}
				got, from = append(got, string(e.Data)), e.Seq
			}
		}
		if strings.Join(got, " ") != strings.Join(want, " ") {
			return fmt.Sprintf("read after %d: got %q, want %q", after, got, want)
		}
		return ""
	})
}

func testLog(s *suite) {
	a, b := s.log()
	key := s.logKey()
	sibling := cluster.LogKey{Group: key.Group, Name: "other"}
	foreign := cluster.LogKey{Group: key.Group + "0", Name: key.Name}
	s.wantEntries(a, key, 0)
	seqs := s.append(a, key, "1", "2")
	others := s.append(b, sibling, "x")
	s.append(b, foreign, "y")
	seqs = append(seqs, s.append(b, key, "3", "4")...)
	s.wantEntries(a, key, 0, "1", "2", "3", "4")
	s.wantEntries(b, key, seqs[0], "2", "3", "4")
	s.wantEntries(b, key, seqs[3])
	s.wantEntries(b, sibling, 0, "x")
	_, err := a.Read(s.ctx, key, others[0], 3)
	s.wantError("read after an entry with another key", err, cluster.ErrGone)
	_, err = a.Read(s.ctx, key, seqs[3]+1_000_000, 3)
	s.wantError("read after an entry that never was", err, cluster.ErrGone)
	if err := a.Drop(s.ctx, key.Group); err != nil {
		s.Fatal(err)
	}
	s.wantEntries(b, key, 0)
	s.wantEntries(b, sibling, 0)
	s.wantEntries(b, foreign, 0, "y")
	_, err = b.Read(s.ctx, key, seqs[0], 3)
	s.wantError("read after an entry that was dropped", err, cluster.ErrGone)
	if again := s.append(a, key, "5"); again[0] <= seqs[3] {
		s.Errorf("entry %d is followed by %d", seqs[3], again[0])
	}
	s.wantEntries(b, key, 0, "5")
	large := strings.Repeat("0123456789abcdef", coordination.MaxValue/16)
	s.append(a, key, large)
	s.wantEntries(b, key, 0, "5", large)
	_, err = a.Append(s.ctx, key, "", []byte(large+"x"))
	s.wantError("append too much", err, cluster.ErrTooLarge)
}

func testLogIDs(s *suite) {
	a, b := s.log()
	key, other := s.logKey(), s.logKey()
	type step struct {
		log  cluster.Log
		key  cluster.LogKey
		id   string
		data string
	}
	seqs := map[string]uint64{}
	for _, st := range []step{{a, key, "id", "1"}, {b, key, "id", "2"}, {b, key, "", "3"}, {a, key, "", "3"}, {b, other, "id", "4"}, {b, key, "id2", "5"}} {
		seqs[st.data] = s.appendID(st.log, st.key, st.id, st.data)
	}
	if seqs["1"] != seqs["2"] {
		s.Errorf("the same id has the numbers %d and %d", seqs["1"], seqs["2"])
	}
	s.wantEntries(b, key, 0, "1", "3", "3", "5")
	s.wantEntries(a, other, 0, "4")
}

func testLogEviction(s *suite) {
	a, b := s.log()
	key := s.logKey()
	seqs := s.append(a, key, "1", "2", "3", "4", "5", "6", "7", "8", "9", "10")
	s.wantEntries(b, key, 0, "3", "4", "5", "6", "7", "8", "9", "10")
	s.wantEntries(b, key, seqs[2], "4", "5", "6", "7", "8", "9", "10")
	for _, seq := range seqs[:2] {
		_, err := b.Read(s.ctx, key, seq, 3)
		s.wantError("read after an evicted entry", err, cluster.ErrGone)
	}
	for _, err := range b.Follow(s.ctx, key, seqs[1]) {
		s.wantError("follow from an evicted entry", err, cluster.ErrGone)
		break
	}
}

// testFollow checks that a follower gets each entry once and in order.
func testFollow(s *suite) {
	a, b := s.log()
	key := s.logKey()
	seqs := s.append(a, key, "0", "1", "2", "3")
	const total = 300
	ctx, cancel := context.WithCancel(s.ctx)
	defer cancel()
	read := make(chan int, total) // values that the follower got
	var wg sync.WaitGroup
	defer wg.Wait()
	defer cancel()
	wg.Go(func() {
		defer close(read)
		for e, err := range b.Follow(ctx, key, seqs[0]) {
			if err != nil {
				s.wantError("follow", err, context.Canceled)
				return
			}
			n := -1
			fmt.Sscan(string(e.Data), &n)
			read <- n
		}
		s.Error("follow ended without an error")
	})
	wait := func(want int) {
		select {
		case n, ok := <-read:
			if !ok || n != want {
				s.Fatalf("the follower got %d, want %d", n, want)
			}
		case <-time.After(waitTimeout):
			s.Fatalf("the follower did not get %d", want)
		}
	}
	wait(1)
	for i := 4; i < total; i++ {
		s.append([]cluster.Log{a, b}[i%2], key, fmt.Sprint(i))
		s.append(a, cluster.LogKey{Group: key.Group, Name: "other"}, "x")
		wait(i - 2)
	}
	wait(total - 2)
	wait(total - 1)
	cancel()
	if n, ok := <-read; ok {
		s.Errorf("the follower got %d after the last one", n)
	}
}

// testFollowSlowly checks that a follower that is too slow gets an error for evicted entries.
func testFollowSlowly(s *suite) {
	a, b := s.log()
	key := s.logKey()
	s.append(a, key, "0")
	last := -1
	for e, err := range b.Follow(s.ctx, key, 0) {
		if err != nil {
			s.wantError("follow", err, cluster.ErrGone)
			return
		}
		n := -1
		fmt.Sscan(string(e.Data), &n)
		if n != last+1 {
			s.Fatalf("%d follows %d", n, last)
		}
		if last = n; n == 0 {
			for i := 1; i <= 100; i++ {
				s.append(a, key, fmt.Sprint(i))
			}
		}
		if n == 100 {
			return // the follower had buffered all entries
		}
	}
}

func testMaxAge(s *suite) {
	const age = 2 * time.Second
	l, err := s.a.Log(s.ctx, "suite-age", cluster.LogOptions{MaxAge: age})
	if err != nil {
		s.Fatal(err)
	}
	key := s.logKey()
	began := time.Now()
	seqs := s.append(l, key, "1", "2")
	s.eventually(func() string {
		entries, err := l.Read(s.ctx, key, 0, 3)
		if err != nil || len(entries) > 0 {
			return fmt.Sprintf("old entries: got %d, %v", len(entries), err)
		}
		return ""
	})
	if d := time.Since(began); d < age {
		s.Errorf("entries expired after %v, want %v", d, age)
	}
	_, err = l.Read(s.ctx, key, seqs[1], 3)
	s.wantError("read after an entry that expired", err, cluster.ErrGone)
}
