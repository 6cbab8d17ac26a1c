package era

import (
	"bytes"
	"strconv"

	"mcpwire/internal/json/jsonwire"
	"mcpwire/internal/text/clip"
	"mcpwire/jsonrpc"
	"mcpwire/mcp"
)

// CheckForwarded returns an error if a message of a client is ambiguous and must not be forwarded.
// Authorization, routing and the server could otherwise read different values. A message is
// ambiguous if
//
//   - a member name appears twice in one object, at any level. Names are compared with their
//     escapes decoded, and those of the message, its params and its result without regard to case,
//     as some servers do;
//   - a member of the message, or the param that names its subject, differs only in case from the
//     correct name;
//   - a method for requests comes in a notification, which is not authorized.
//
// frame is the text of m, or nil if m came in a batch. The error is a [FormError] that wraps the
// *[jsonrpc.Error] for the response: invalid params if it is about params, else invalid request.
// The time is linear in the length of the message.
func CheckForwarded(frame []byte, m *jsonrpc.Message) error {
	if err := CheckMembers(frame, m, true); err != nil {
		return err
	}
	if m.Kind == jsonrpc.KindNotification && (Of(mcp.LatestRevision).HasMethod(m.Method) || Of(mcp.LatestLegacyRevision).HasMethod(m.Method)) {
		return &FormError{invalidRequest("%s is a request and needs an id", m.Method)}
	}
	param := NameParam(m.Method)
	if param == "" {
		return nil
	}
	if _, ok := m.Param(param); ok {
		return nil // another spelling is a duplicate
	}
	for members := jsonwire.ObjectMembers(m.Params); members.Next(); {
		if isMisspelled(&members, param) {
			return &FormError{invalidParams("member " + clipName(members.RawKey()) + " must be spelled " + strconv.Quote(param))}
		}
	}
	return nil
}

// CheckMembers checks the member names as CheckForwarded does, for messages of either side. fold
// ignores case in params and result.
func CheckMembers(frame []byte, m *jsonrpc.Message, fold bool) error {
	folded := 0
	if fold {
		folded = 1
	}
	if frame != nil {
		name, twice := jsonwire.Duplicate(frame, folded+1)
		if !twice {
			return checkEnvelope(frame)
		}
		if _, inParams := jsonwire.Duplicate(m.Params, folded); !inParams {
			return &FormError{invalidRequest("%s", appearsTwice(name))}
		}
	}
	if name, twice := jsonwire.Duplicate(m.Params, folded); twice {
		return &FormError{invalidParams(appearsTwice(name))}
	}
	for _, part := range [...][]byte{m.Result, m.Error} {
		if name, twice := jsonwire.Duplicate(part, folded); twice {
			return &FormError{invalidRequest("%s", appearsTwice(name))}
		}
	}
	return nil
}

// checkEnvelope returns an error for a member that differs only in case from a JSON-RPC name.
func checkEnvelope(frame []byte) error {
	for members := jsonwire.ObjectMembers(frame); members.Next(); {
		switch string(members.RawKey()) {
		case "jsonrpc", "id", "method", "params", "result", "error":
			continue
		}
		for _, want := range [...]string{"jsonrpc", "id", "method", "params", "result", "error"} {
			if isMisspelled(&members, want) {
				return &FormError{invalidRequest("member %s must be spelled %q", clipName(members.RawKey()), want)}
			}
		}
	}
	return nil
}

// isMisspelled reports if a name differs from want only in case.
func isMisspelled(m *jsonwire.Members, want string) bool {
	name := m.RawKey()
	if len(name) < len(want) || string(name) == want {
		return false
	}
	if bytes.IndexByte(name, '\\') >= 0 {
		name = []byte(m.KeyString())
	}
	return string(name) != want && bytes.EqualFold(name, []byte(want))
}

func appearsTwice(name []byte) string {
	return "member " + clipName(name) + " appears more than once"
}

// clipName returns the beginning of a member name, for error messages.
func clipName(raw []byte) string {
	const most = 64
	if len(raw) > most {
		return clip.Quote(raw, most) // cut escapes stay encoded
	}
	return strconv.Quote(jsonwire.UnquoteString(raw))
}
