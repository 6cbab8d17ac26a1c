//go:build linux

package main

import (
	"context"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"
)

// TestResponseBeforeBody tests that a node can respond before the request has ended, as a server
// does that needs no more of it.
func TestResponseBeforeBody(t *testing.T) {
	node := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		c := http.NewResponseController(w)
		if err := c.EnableFullDuplex(); err != nil {
			t.Error(err)
		}
		if err := c.Flush(); err != nil {
			t.Error(err)
		}
		if _, err := io.Copy(w, r.Body); err != nil {
			t.Error(err)
		}
	}))
	defer node.Close()
	b, err := newBalancer([]string{strings.TrimPrefix(node.URL, "http://")})
	if err != nil {
		t.Fatal(err)
	}
	defer b.close()

	body, w := io.Pipe()
	defer w.Close()
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, b.url, body)
	if err != nil {
		t.Fatal(err)
	}
	response, err := http.DefaultClient.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	if _, err := io.WriteString(w, "the rest"); err != nil {
		t.Errorf("write the body after the response has begun: %v", err)
	}
	w.Close()
	got, err := io.ReadAll(response.Body)
	if want := "the rest"; string(got) != want || err != nil {
		t.Errorf("response %q, %v, want %q", got, err, want)
	}
}
