package web

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"

	"mcpwire/internal/jsonwire"
)

const jsonType = "application/json; charset=utf-8"

// writeJSON writes a value as JSON.
func writeJSON(w http.ResponseWriter, v any) {
	body, err := marshal(v)
	if err != nil {
		writeError(w, http.StatusInternalServerError, "the answer cannot be written as JSON")
		return
	}
	writeJSONBytes(w, body)
}

func writeJSONBytes(w http.ResponseWriter, body []byte) {
	w.Header().Set("Content-Type", jsonType)
	w.Write(body)
}

// marshal is json.Marshal without the escapes that are for JSON inside HTML.
func marshal(v any) ([]byte, error) {
	var buf bytes.Buffer
	e := json.NewEncoder(&buf)
	e.SetEscapeHTML(false)
	if err := e.Encode(v); err != nil {
		return nil, fmt.Errorf("ui: %w", err)
	}
	return bytes.TrimSuffix(buf.Bytes(), []byte("\n")), nil
}

// writeError answers with an error, for people.
func writeError(w http.ResponseWriter, status int, message string) {
	h := w.Header()
	h.Set("Content-Type", jsonType)
	h.Del("Content-Disposition")
	w.WriteHeader(status)
	w.Write(append(jsonwire.AppendQuote([]byte(`{"error":{"message":`), message), "}}\n"...))
}

func writeBusy(w http.ResponseWriter) {
	w.Header().Set("Retry-After", "2")
	writeError(w, http.StatusServiceUnavailable, "too many requests at once")
}

// maxErrorMessage is how much of an error is told, in bytes.
const maxErrorMessage = 2 << 10

// writeErrorOf answers with what an error says.
func writeErrorOf(w http.ResponseWriter, status int, err error) {
	var tooLarge *http.MaxBytesError
	if errors.As(err, &tooLarge) {
		status = http.StatusRequestEntityTooLarge
	}
	m := err.Error()
	if len(m) > maxErrorMessage {
		m = strings.ToValidUTF8(m[:maxErrorMessage], "") + "…"
	}
	writeError(w, status, m)
}

// readJSON reads the body of a request, which is an object of so many bytes at most.
func readJSON(w http.ResponseWriter, r *http.Request, limit int64, v any) error {
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, limit))
	if err != nil {
		return fmt.Errorf("reading the request: %w", err)
	}
	d := json.NewDecoder(bytes.NewReader(body))
	d.DisallowUnknownFields()
	if err := d.Decode(v); err != nil {
		return fmt.Errorf("the request: %w", err)
	}
	return nil
}
