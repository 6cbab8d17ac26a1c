package auth

import (
	"cmp"
	"encoding/json"
	"io"
	"net/http"
	"time"
)

const (
	// maxStepUps is how often more scopes are asked for, for one operation within stepUpWindow, and maxAllStepUps for all together: what operations there are, servers say.
	maxStepUps    = 2
	maxAllStepUps = 10
	stepUpWindow  = 10 * time.Minute
	// maxOperations bounds what is remembered of operations, whose names may be a server's, and maxOperationName each in bytes.
	maxOperations    = 1024
	maxOperationName = 256
	// maxOperationBody is how much of a request is read to find out what operation it is part of.
	maxOperationBody = 4 << 20
)

// stepUpState is what is remembered of one operation.
type stepUpState struct {
	count int
	since time.Time
	// denied is what the last attempt failed with.
	denied error
}

// stepUpLocked returns the entry of an operation, or nil if no more scopes may be asked for. It is for who holds s.mu.
func (s *serverAuth) stepUpLocked(operation string, now time.Time) *stepUpState {
	all := 0
	for name, e := range s.stepUps {
		if now.Sub(e.since) >= stepUpWindow {
			delete(s.stepUps, name)
			continue
		}
		all += e.count
	}
	if all >= maxAllStepUps {
		return nil
	}
	e := s.stepUps[operation]
	if e == nil {
		if len(s.stepUps) >= maxOperations {
			return nil
		}
		e = &stepUpState{since: now}
		s.stepUps[operation] = e
	}
	if e.count >= maxStepUps || e.denied != nil {
		return nil
	}
	return e
}

// operationOf returns what a request is part of: what its context says, or what it brings. It reads that once more, which only requests that were refused cost.
func operationOf(req *http.Request) string {
	if name, ok := req.Context().Value(operationKey{}).(string); ok {
		return name
	}
	if req.GetBody == nil {
		return ""
	}
	body, err := req.GetBody()
	if err != nil {
		return ""
	}
	defer body.Close()
	var m struct {
		Method string
		Params struct{ Name, URI string } // what a method may be about; there is none with both
	}
	if json.NewDecoder(io.LimitReader(body, maxOperationBody)).Decode(&m) != nil {
		return ""
	}
	name := m.Method
	if about := cmp.Or(m.Params.Name, m.Params.URI); about != "" {
		name += " " + about
	}
	return name[:min(len(name), maxOperationName)]
}
