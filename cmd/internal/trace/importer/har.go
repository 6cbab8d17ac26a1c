package importer

import (
	"bufio"
	"bytes"
	"cmp"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/url"
	"slices"
	"strings"
	"time"

	"mcpwire/capture"
	"mcpwire/internal/json/jsonwire"
	"mcpwire/internal/net/sse"
)

// maxHAR limits the size of an archive, in bytes. Its events must be sorted, so they are kept in
// memory.
const maxHAR = 512 << 20

// maxHAREvents limits the events of an archive. The last entry may exceed it.
const maxHAREvents = 1 << 20

// ErrTooLarge is the error for an archive above the limits.
var ErrTooLarge = errors.New("an HTTP archive of more than 512 MiB, or of more than a million events")

type (
	harEntry struct {
		Started time.Time `json:"startedDateTime"`
		// Time is in milliseconds.
		Time    float64
		Request struct {
			Method   string
			URL      string
			Version  string `json:"httpVersion"`
			Headers  bounded[harPair]
			PostData *struct {
				Text     string
				Encoding string
			}
		}
		Response struct {
			Status  int
			Version string `json:"httpVersion"`
			Headers bounded[harPair]
			Content struct {
				MimeType string
				Text     string
				Encoding string
			}
			SSE bounded[harEvent] `json:"_sse"`
		}
		Timings struct{ Wait, Receive float64 }
		Comment string
		// MCP is written by our own archives only.
		MCP struct {
			Server  string
			Session uint64
		} `json:"_mcp"`
	}
	harPair  struct{ Name, Value string }
	harEvent struct {
		Time    time.Time
		ID      *string
		Event   string
		Retry   *int64
		Comment *string
		Data    *string
	}
)

// maxElements limits the elements read from an array. Elements are small in the archive and large
// in memory.
const maxElements = 1 << 16

// bounded holds the first maxElements elements of an array.
type bounded[T any] []T

// UnmarshalJSON implements [json.Unmarshaler].
func (b *bounded[T]) UnmarshalJSON(text []byte) error {
	if text[0] != '[' {
		return nil
	}
	elements := jsonwire.ArrayElements(text)
	for elements.Next() && len(*b) < maxElements {
		var x T
		if err := json.Unmarshal(elements.Value(), &x); err != nil {
			return err
		}
		*b = append(*b, x)
	}
	return nil
}

// timedEvent is an event with its time.
type timedEvent struct {
	at time.Time
	e  *capture.Event
}

// readHAR reads an archive. It skips entries without MCP traffic: archives of browsers contain
// pages, images and scripts.
func readHAR(br *bufio.Reader, s *sink) error {
	in := &io.LimitedReader{R: br, N: maxHAR + 1}
	d := json.NewDecoder(in)
	var events []timedEvent
	full := false
	var number uint64
	var first *url.URL
	var name string
	err := entries(d, func(x *harEntry) {
		if !x.isMCP() {
			s.result.Skipped++
			return
		}
		if len(events) >= maxHAREvents {
			full = true
			return
		}
		number++
		u, err := url.Parse(x.Request.URL)
		if err == nil && first == nil && u.Host != "" {
			first = u
			s.url, name = serverURL(u), cmp.Or(x.MCP.Server, u.Host)
		}
		target := x.Request.URL
		if first != nil && err == nil && u.Scheme == first.Scheme && u.Host == first.Host {
			target = u.RequestURI()
		}
		events = append(events, x.events(number, target)...)
	})
	switch {
	case in.N <= 0 || full:
		return ErrTooLarge
	case err != nil:
		return fmt.Errorf("%w: malformed HTTP archive: %w", ErrUnknown, err)
	case len(events) == 0:
		return fmt.Errorf("%w: none of the archive's %d entries is MCP", ErrUnknown, s.result.Skipped)
	}
	slices.SortStableFunc(events, func(a, b timedEvent) int { return a.at.Compare(b.at) })
	if err := s.begin(events[0].at, name, "http"); err != nil {
		return err
	}
	for _, v := range events {
		if err := s.add(v.at, v.e); err != nil {
			return err
		}
	}
	return nil
}

// serverURL returns the URL of a request without its fragment.
func serverURL(u *url.URL) string {
	at := *u
	at.Fragment, at.RawFragment = "", ""
	return at.String()
}

// entries calls each for every element of log.entries.
func entries(d *json.Decoder, each func(x *harEntry)) error {
	if err := expectDelim(d, '{'); err != nil {
		return err
	}
	if err := enterMember(d, "log"); err != nil {
		return err
	}
	if err := expectDelim(d, '{'); err != nil {
		return err
	}
	if err := enterMember(d, "entries"); err != nil {
		return err
	}
	if err := expectDelim(d, '['); err != nil {
		return err
	}
	for d.More() {
		var x harEntry
		if err := d.Decode(&x); err != nil {
			return err
		}
		each(&x)
	}
	return nil
}

func expectDelim(d *json.Decoder, delim json.Delim) error {
	t, err := d.Token()
	if err == nil && t != delim {
		err = fmt.Errorf("%v where %v should be", t, delim)
	}
	return err
}

// enterMember advances to the value of a member of the object that was opened.
func enterMember(d *json.Decoder, name string) error {
	for d.More() {
		t, err := d.Token()
		if err != nil {
			return err
		}
		if t == name {
			return nil
		}
		var skipped json.RawMessage
		if err := d.Decode(&skipped); err != nil {
			return err
		}
	}
	return fmt.Errorf("missing member %q", name)
}

// isMCP reports whether an entry contains MCP traffic.
func (he *harEntry) isMCP() bool {
	const mark = `"jsonrpc"`
	if he.Request.PostData != nil && strings.Contains(he.Request.PostData.Text, mark) || strings.Contains(he.Response.Content.Text, mark) {
		return true
	}
	return slices.ContainsFunc(he.Request.Headers, func(h harPair) bool { return len(h.Name) > 4 && strings.EqualFold(h.Name[:4], "mcp-") })
}

// events returns the events of the entry. target is the request target, in place of the URL.
func (he *harEntry) events(number uint64, target string) []timedEvent {
	began := he.Started
	answered := began.Add(durationOf(he.Timings.Wait))
	ended := began.Add(max(durationOf(he.Time), answered.Sub(began)))
	var list []timedEvent
	add := func(at time.Time, e *capture.Event) {
		e.Exchange, e.Session = number, he.MCP.Session
		list = append(list, timedEvent{at, e})
	}
	add(began, &capture.Event{Kind: capture.KindRequest, Dir: capture.ToServer, Request: &capture.Request{
		Method: he.Request.Method, URL: target, Proto: proto(he.Request.Version), Headers: headers(he.Request.Headers),
	}})
	if p := he.Request.PostData; p != nil && p.Text != "" {
		add(began, bodyEvent(capture.ToServer, decode(p.Text, p.Encoding)))
	}
	r := &he.Response
	if r.Status <= 0 {
		add(ended, &capture.Event{Kind: capture.KindEnd, Data: []byte(he.Comment)})
		return list
	}
	add(answered, &capture.Event{Kind: capture.KindResponse, Dir: capture.ToClient, Response: &capture.Response{Status: r.Status, Proto: proto(r.Version), Headers: headers(r.Headers)}})
	body := decode(r.Content.Text, r.Content.Encoding)
	switch {
	case len(r.SSE) > 0:
		for i := range r.SSE {
			add(latest(r.SSE[i].Time, answered), r.SSE[i].event())
		}
	case strings.HasPrefix(strings.ToLower(r.Content.MimeType), "text/event-stream"):
		for _, e := range streamEvents(body) {
			add(ended, e) // the archive has no time for each event
		}
	case len(body) > 0:
		add(ended, bodyEvent(capture.ToClient, body))
	}
	add(ended, &capture.Event{Kind: capture.KindEnd, Data: []byte(he.Comment)})
	return list
}

// event converts a stream event of our own archives.
func (hv *harEvent) event() *capture.Event {
	e := &capture.Event{Kind: capture.KindSSE, Dir: capture.ToClient, SSE: &capture.SSE{Event: hv.Event}}
	if hv.ID != nil {
		e.SSE.ID, e.SSE.HasID = *hv.ID, true
	}
	if hv.Retry != nil {
		e.SSE.Retry, e.SSE.HasRetry = time.Duration(*hv.Retry)*time.Millisecond, true
	}
	if hv.Comment != nil {
		e.SSE.Comment, e.SSE.HasComment = *hv.Comment, true
	}
	if hv.Data != nil {
		e.Data, e.SSE.HasData = []byte(*hv.Data), true
		if isMessage(e.Data) {
			e.Kind = capture.KindMessage
		}
	}
	return e
}

// streamEvents returns the events of an event stream, without comments.
func streamEvents(body []byte) []*capture.Event {
	r := sse.NewReader(bytes.NewReader(body), len(body)+1)
	var list []*capture.Event
	for {
		v, err := r.Read()
		if err != nil {
			return list
		}
		e := &capture.Event{Kind: capture.KindSSE, Dir: capture.ToClient, Data: bytes.Clone(v.Data), SSE: &capture.SSE{
			Event: v.Name, ID: string(v.ID), HasID: v.HasID, HasData: v.Data != nil, Retry: v.Retry, HasRetry: v.HasRetry,
		}}
		if isMessage(e.Data) {
			e.Kind = capture.KindMessage
		}
		list = append(list, e)
	}
}

func bodyEvent(dir capture.Dir, data []byte) *capture.Event {
	if isMessage(data) {
		return &capture.Event{Kind: capture.KindMessage, Dir: dir, Data: data}
	}
	return &capture.Event{Kind: capture.KindBody, Dir: dir, Data: data}
}

// isMessage reports whether a payload is a message or a batch.
func isMessage(data []byte) bool {
	data = bytes.TrimSpace(data)
	return len(data) > 0 && (data[0] == '{' || data[0] == '[') && bytes.Contains(data, []byte(`"jsonrpc"`)) && jsonwire.Valid(data, 0) == nil
}

func decode(text, encoding string) []byte {
	if encoding == "base64" {
		if b, err := base64.StdEncoding.DecodeString(text); err == nil {
			return b
		}
	}
	return []byte(text)
}

func headers(list []harPair) []capture.Header {
	out := make([]capture.Header, 0, len(list))
	for _, h := range list {
		if !strings.HasPrefix(h.Name, ":") { // pseudo-header fields of HTTP/2
			out = append(out, capture.Header{Name: h.Name, Value: h.Value})
		}
	}
	return out
}

func proto(version string) string {
	switch strings.ToLower(version) {
	case "", "unknown":
		return "HTTP/1.1"
	case "h2", "http/2", "http/2.0":
		return "HTTP/2.0"
	case "h3":
		return "HTTP/3.0"
	}
	return strings.ToUpper(version)
}

// durationOf returns the duration of a number of milliseconds.
func durationOf(ms float64) time.Duration {
	const most = float64(365 * 24 * time.Hour / time.Millisecond)
	if !(ms > 0) { // archives use -1 for unknown times
		return 0
	}
	return time.Duration(min(ms, most) * float64(time.Millisecond))
}

func latest(a, b time.Time) time.Time {
	if a.Before(b) {
		return b
	}
	return a
}
