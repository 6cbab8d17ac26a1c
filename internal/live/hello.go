package live

import "errors"

// Version is the version of the protocol. It grows when a viewer of the old one would be misled.
const Version = 1

const (
	maxGreeting = 64 << 10 // bytes
	maxControl  = 4 << 10
)

// ErrGreeting is wrapped by the error for a socket whose greeting is not one of this package, or of a newer version.
var ErrGreeting = errors.New("live: no greeting of a tap")

// A Greeting is what a tap says of itself when a viewer connects.
type Greeting struct {
	Version   int    `json:"mcpwire"`
	Capture   string `json:"capture"`             // its id, as in its head
	Name      string `json:"name,omitempty"`      // of the server
	Transport string `json:"transport,omitempty"` // "stdio" or "http"
	PID       int    `json:"pid"`                 // of the tap
	File      string `json:"file,omitempty"`      // the capture, an absolute path; "" if there is none
	Next      uint64 `json:"next"`                // number of the first event that is sent; a greater one if that one gets lost
	Restart   bool   `json:"restart,omitempty"`   // whether it starts the server again when it is asked to
}

// A control is what a viewer may ask for.
type control struct {
	Wake    bool `json:"wake,omitempty"`
	Restart bool `json:"restart,omitempty"`
}
