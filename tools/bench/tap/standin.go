//go:build linux

package main

import (
	"bufio"
	"encoding/json"
	"io"
	"os"
	"os/exec"
	"sync"
	"time"
)

// maxStandinLine is the longest line whose copy the stand-in keeps.
const maxStandinLine = 16 << 20

// A standinFrame is a line of its trace.
type standinFrame struct {
	Session   string          `json:"session_id"`
	Seq       int64           `json:"seq"`
	Time      time.Time       `json:"ts"`
	Direction string          `json:"direction"`
	Transport string          `json:"transport"`
	Raw       json.RawMessage `json:"raw,omitempty"`
	Text      string          `json:"text,omitempty"`
}

// standin is a tap of the usual design: a line is read as a whole, forwarded, and then handed
// through a channel to a goroutine that writes it as JSON.
func standin(file string, command []string) int {
	out, err := os.Create(file)
	if err != nil {
		return 1
	}
	cmd := exec.Command(command[0], command[1:]...)
	in, err := cmd.StdinPipe()
	if err != nil {
		return 1
	}
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		return 1
	}
	cmd.Stderr = os.Stderr
	if err := cmd.Start(); err != nil {
		return 1
	}
	frames := make(chan standinFrame, 1024)
	var writer sync.WaitGroup
	writer.Go(func() {
		w := bufio.NewWriter(out)
		enc := json.NewEncoder(w)
		var seq int64
		for f := range frames {
			seq++
			f.Seq = seq
			_ = enc.Encode(f)
			if len(frames) == 0 {
				_ = w.Flush()
			}
		}
		out.Close()
	})
	var pumps sync.WaitGroup
	pumps.Go(func() {
		standinPump(in, os.Stdin, "c2s", frames)
		in.Close()
	})
	pumps.Go(func() { standinPump(os.Stdout, stdout, "s2c", frames) })
	pumps.Wait()
	close(frames)
	writer.Wait()
	if cmd.Wait() != nil {
		return 1
	}
	return 0
}

func standinPump(dst io.Writer, src io.Reader, direction string, frames chan<- standinFrame) {
	r := bufio.NewReader(src)
	for {
		line, err := r.ReadBytes('\n')
		if len(line) > 0 {
			if _, err := dst.Write(line); err != nil {
				return
			}
			f := standinFrame{Session: "bench", Time: time.Now(), Direction: direction, Transport: "stdio"}
			if text := line[:min(len(line), maxStandinLine)]; json.Valid(text) {
				f.Raw = text
			} else {
				f.Text = string(text)
			}
			frames <- f
		}
		if err != nil {
			return
		}
	}
}
