//go:build linux

package main

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/cookiejar"
	"net/url"
	"os/exec"
	"strings"
	"time"
)

// toRows runs watch --web until the page has its first rows.
func toRows(binary string, args []string) (figures, error) {
	return followPage(binary, args, func(event, _ []byte) bool { return string(event) == "rows" })
}

// toLoaded runs watch --web until the page knows that the capture was read to its end.
func toLoaded(binary string, args []string) (figures, error) {
	return followPage(binary, args, func(event, data []byte) bool {
		return string(event) == "sources" && bytes.Contains(data, []byte(`"complete"`))
	})
}

// pageTimeout limits a run of watch --web.
const pageTimeout = 10 * time.Minute

// followPage starts watch --web and reads the stream of its page until done returns true.
func followPage(binary string, args []string, done func(event, data []byte) bool) (figures, error) {
	ctx, cancel := context.WithTimeout(context.Background(), pageTimeout)
	defer cancel()
	c := exec.CommandContext(ctx, binary, args...)
	out, err := c.StdoutPipe()
	if err != nil {
		return figures{}, err
	}
	began := time.Now()
	if err := c.Start(); err != nil {
		return figures{}, err
	}
	line, err := bufio.NewReader(out).ReadString('\n')
	if err == nil {
		err = readPage(ctx, strings.TrimSpace(line), done)
	}
	took := time.Since(began)
	_ = c.Process.Kill()
	_ = c.Wait() // the signal
	return usage(c, took), err
}

// readPage gets the page's cookie, and reads its stream until done returns true.
func readPage(ctx context.Context, address string, done func(event, data []byte) bool) error {
	u, err := url.Parse(address)
	if err != nil {
		return err
	}
	jar, err := cookiejar.New(nil)
	if err != nil {
		return err
	}
	client := &http.Client{Jar: jar}
	for _, target := range []string{address, u.ResolveReference(&url.URL{Path: "/api/stream"}).String()} {
		req, err := http.NewRequestWithContext(ctx, http.MethodGet, target, nil)
		if err != nil {
			return err
		}
		resp, err := client.Do(req)
		if err != nil {
			return err
		}
		defer resp.Body.Close()
		if resp.StatusCode != http.StatusOK {
			return fmt.Errorf("GET %s: %s", req.URL.Path, resp.Status)
		}
		if target == address {
			continue
		}
		var event []byte
		lines := bufio.NewReaderSize(resp.Body, 16<<20)
		for {
			line, err := lines.ReadSlice('\n')
			if err != nil {
				return errors.Join(errors.New("the stream has ended"), err)
			}
			if name, ok := bytes.CutPrefix(line, []byte("event: ")); ok {
				event = bytes.Clone(bytes.TrimSpace(name))
			} else if data, ok := bytes.CutPrefix(line, []byte("data: ")); ok && done(event, data) {
				return nil
			}
		}
	}
	return nil
}
