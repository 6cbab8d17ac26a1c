package streamable

import (
	"errors"
	"fmt"
	"io"
	"mime"
	"net"
	"net/http"
	"strings"
	"time"

	"mcpwire/jsonrpc"
)

// Kinds of body that are taken.
type bodyKind uint8

const (
	bodyOther bodyKind = iota
	bodyJSON
	bodyNDJSON
)

// bodyKindOf tells what a request says its body is. A type is compared as a whole, since what only contains the name of another is what pages can send
// without asking.
func bodyKindOf(r *http.Request) bodyKind {
	values := r.Header["Content-Type"]
	if len(values) != 1 {
		return bodyOther
	}
	if values[0] == "application/json" {
		return bodyJSON
	}
	media, params, err := mime.ParseMediaType(values[0])
	if charset, ok := params["charset"]; err != nil || ok && !strings.EqualFold(charset, "utf-8") {
		return bodyOther
	}
	switch media {
	case "application/json":
		return bodyJSON
	case "application/x-ndjson":
		return bodyNDJSON
	}
	return bodyOther
}

// isEncoded reports whether the body is compressed, or encoded otherwise.
func isEncoded(r *http.Request) bool {
	values, ok := r.Header["Content-Encoding"]
	return ok && (len(values) != 1 || !strings.EqualFold(values[0], "identity"))
}

// errBodyTooLarge is what readBody fails with beyond Options.MaxBody.
var errBodyTooLarge = errors.New("body too large")

// minBodyBuffer is the first buffer for a body whose length is not known, in bytes.
const minBodyBuffer = 512

// readBody reads the body. A body whose length is known takes one buffer of that size; one that lies about it is read no further than it says.
func (pr *postRequest) readBody() (err error) {
	h, r := pr.h, pr.r
	limit := h.opts.MaxBody
	if r.ContentLength > int64(limit) {
		return errBodyTooLarge
	}
	// net/http takes the deadline away itself when it sees the end of a body of HTTP/1, because it reads on then to see whether the client goes.
	pr.readAt = h.clock.elapsed()
	if r.ContentLength != 0 && pr.setReadDeadline(h.clock.base.Add(pr.readAt+h.opts.BodyTimeout)) == nil {
		defer func() {
			if err != nil || r.ProtoMajor != 1 {
				pr.setReadDeadline(time.Time{})
			}
		}()
	}
	b := pr.body[:0]
	size := int(r.ContentLength) + 1 // one more, so that the end is seen without growing
	if n := min(size, maxReusedBuffer); n > cap(b) {
		b = make([]byte, 0, n) // no more at once, as long as the client has not sent any
	}
	defer func() { pr.body = b }()
	for reads := 1; ; reads++ {
		if len(b) == cap(b) {
			b = append(make([]byte, 0, max(min(size, 8*cap(b)), 2*cap(b), minBodyBuffer)), b...)
		}
		n, err := r.Body.Read(b[len(b):cap(b)])
		b = b[:len(b)+n]
		switch {
		case len(b) > limit:
			return errBodyTooLarge
		case err != nil && err != io.EOF:
			return err
		case err != nil:
			if reads > 1 { // it took its time
				pr.readAt = h.clock.elapsed()
			}
			pr.markBodyConsumed()
			return nil
		}
	}
}

// writeBodyError answers for a body that could not be read.
func (h *Handler) writeBodyError(w http.ResponseWriter, r *http.Request, err error) {
	if r.ProtoMajor == 1 {
		w.Header()["Connection"] = closeConnection // what follows need not be read
	}
	if errors.Is(err, errBodyTooLarge) {
		writeError(w, http.StatusRequestEntityTooLarge, jsonrpc.CodeInvalidRequest, fmt.Sprintf("body of more than %d bytes", h.opts.MaxBody))
		return
	}
	h.opts.Logger.Debug("body not read", "error", err)
	if timeout, ok := errors.AsType[net.Error](err); ok && timeout.Timeout() {
		writeError(w, http.StatusRequestTimeout, jsonrpc.CodeInvalidRequest, "the body did not arrive in time")
		return
	}
	writeError(w, http.StatusBadRequest, jsonrpc.CodeInvalidRequest, "the body is not what its header or its chunks say, or ends early")
}

// acceptedTypes is what a client takes as the answer to a request.
type acceptedTypes struct{ json, stream bool }

// parseAccept reads the Accept headers. A client that sends none takes everything.
func parseAccept(r *http.Request) acceptedTypes {
	values := r.Header["Accept"]
	if len(values) == 0 || len(values) == 1 && (values[0] == "application/json, text/event-stream" || values[0] == "*/*") {
		return acceptedTypes{json: true, stream: true}
	}
	var a, not acceptedTypes // what is named, with whatever weight, overrules what only fits
	var any, anyText, anyApplication bool
	for _, value := range values {
		for part := range strings.SplitSeq(value, ",") {
			media, params, _ := strings.Cut(part, ";")
			accept := !hasZeroWeight(params)
			switch strings.ToLower(strings.Trim(media, " \t")) {
			case "*/*":
				any = any || accept
			case "text/*":
				anyText = anyText || accept
			case "application/*":
				anyApplication = anyApplication || accept
			case "application/json":
				a.json, not.json = a.json || accept, !accept
			case "text/event-stream":
				a.stream, not.stream = a.stream || accept, !accept
			}
		}
	}
	a.json = a.json || (any || anyApplication) && !not.json
	a.stream = a.stream || (any || anyText) && !not.stream
	return a
}

// hasZeroWeight reports whether the parameters of a media range have a weight of 0.
func hasZeroWeight(params string) bool {
	for p := range strings.SplitSeq(params, ";") {
		key, value, _ := strings.Cut(strings.Trim(p, " \t"), "=")
		if strings.EqualFold(key, "q") {
			return strings.Trim(value, "0.") == "" && strings.HasPrefix(value, "0")
		}
	}
	return false
}
