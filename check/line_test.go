package check_test

import (
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"mcpwire/capture"
)

// line writes an event as a text that mutations can be made in: a word or a sign, what is there besides, and the bytes behind it.
func line(e *capture.Event) string {
	var b strings.Builder
	sign := map[capture.Dir]string{capture.ToServer: ">", capture.ToClient: "<", "": "-"}[e.Dir]
	fmt.Fprintf(&b, "%s %s x%d\n", sign, e.Kind, e.Exchange)
	head := func(first string, headers []capture.Header) {
		b.WriteString(first + "\n")
		var lines []string
		for _, h := range headers {
			lines = append(lines, h.Name+": "+h.Value+"\n")
		}
		slices.Sort(lines)
		b.WriteString(strings.Join(lines, ""))
	}
	switch {
	case e.Request != nil:
		head(e.Request.Method+" "+e.Request.URL, e.Request.Headers)
	case e.Response != nil:
		head(strconv.Itoa(e.Response.Status), e.Response.Headers)
	case e.Exit != nil:
		fmt.Fprintf(&b, "%d\n", e.Exit.Code)
	case e.SSE != nil:
		fmt.Fprintf(&b, "event: %s\nid: %s\nretry: %d\n", e.SSE.Event, e.SSE.ID, e.SSE.Retry.Milliseconds())
	case e.Framing != "":
		fmt.Fprintf(&b, "framing: %s\n", e.Framing)
	}
	return b.String() + "\n" + string(e.Data)
}

// parseLine is the way back: it returns e with what the text says.
func parseLine(text string, e capture.Event) capture.Event {
	top, data, _ := strings.Cut(text, "\n\n")
	first, rest, _ := strings.Cut(top, "\n")
	words := strings.Fields(first)
	e.Kind, e.Data = capture.Kind(words[1]), []byte(data)
	e.Exchange, _ = strconv.ParseUint(words[2][1:], 10, 64)
	if e.Kind == capture.KindMessage && (!utf8.ValidString(data) || !json.Valid(e.Data)) {
		e.Kind = capture.KindInvalid
	}
	first, rest, _ = strings.Cut(rest, "\n")
	switch {
	case e.Request != nil:
		method, url, _ := strings.Cut(first, " ")
		e.Request = &capture.Request{Method: method, URL: url, Proto: e.Request.Proto, Headers: headerLines(rest)}
	case e.Response != nil:
		status, _ := strconv.Atoi(first)
		e.Response = &capture.Response{Status: status, Proto: e.Response.Proto, Headers: headerLines(rest)}
	case e.Exit != nil:
		code, _ := strconv.Atoi(first)
		e.Exit = &capture.Exit{Code: code}
	case e.SSE != nil:
		s := *e.SSE
		for _, h := range headerLines(first + "\n" + rest) {
			switch h.Name {
			case "event":
				s.Event = h.Value
			case "id":
				s.ID, s.HasID = h.Value, s.HasID || h.Value != ""
			case "retry":
				ms, _ := strconv.Atoi(h.Value)
				s.Retry, s.HasRetry = time.Duration(ms)*time.Millisecond, s.HasRetry || ms != 0
			}
		}
		e.SSE = &s
	case e.Framing != "":
		_, f, _ := strings.Cut(first, ": ")
		f, e.Why, _ = strings.Cut(f, " ")
		e.Framing = capture.Framing(f)
		if e.Framing == capture.FramingHeader {
			e.Prefix = fmt.Sprintf("Content-Length: %d\r\n\r\n", len(e.Data))
		}
	}
	return e
}

func headerLines(text string) (list []capture.Header) {
	for l := range strings.Lines(text) {
		if name, value, ok := strings.Cut(strings.TrimSuffix(l, "\n"), ": "); ok {
			list = append(list, capture.Header{Name: name, Value: value})
		}
	}
	return list
}
