package era

import (
	"bytes"
	"strconv"
	"strings"

	"mcpwire/internal/json/jsonwire"
	"mcpwire/jsonrpc"
	"mcpwire/mcp"
)

// CheckForwarded returns why a message of a client must not be forwarded, and nil if it may be. Whoever judges a message, routes it or translates it reads the same members as
// the server only if there is one way to read them. So there is an error if
//
//   - a member name appears twice in one object, at any level. Names are compared with their escapes decoded, and those of the message itself, of its params and of its result
//     regardless of case, as some servers read them;
//   - a member of the message itself, or the param that names what the request is about, is spelled with other letter cases only;
//   - a method that is only ever a request's comes as a notification, which nobody authorizes.
//
// frame is the text that m was parsed from, nil if m came in a batch. The error is a [FormError] around the *[jsonrpc.Error] to answer with: invalid params if it is about
// params, and otherwise an invalid request. The time is linear in the length of the message.
func CheckForwarded(frame []byte, m *jsonrpc.Message) error {
	if err := CheckMembers(frame, m, true); err != nil {
		return err
	}
	if m.Kind == jsonrpc.KindNotification && (Of(mcp.LatestRevision).HasMethod(m.Method) || Of(mcp.LatestLegacyRevision).HasMethod(m.Method)) {
		return &FormError{invalidRequest("%s is a request, and needs an id", m.Method)}
	}
	param := NameParam(m.Method)
	if param == "" {
		return nil
	}
	if _, ok := m.Param(param); ok {
		return nil // any other spelling is a duplicate
	}
	for members := jsonwire.ObjectMembers(m.Params); members.Next(); {
		if isMisspelled(&members, param) {
			return &FormError{invalidParams("member " + clipName(members.RawKey()) + " must be spelled " + strconv.Quote(param))}
		}
	}
	return nil
}

// CheckMembers is the part of CheckForwarded that is about member names, for messages of either side. fold says whether names in params and result count as the same that
// differ in case only.
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

// checkEnvelope complains of a member of a message that is none of the protocol's, but would be if letter case did not count.
func checkEnvelope(frame []byte) error {
	for members := jsonwire.ObjectMembers(frame); members.Next(); {
		for _, want := range [...]string{"jsonrpc", "id", "method", "params", "result", "error"} {
			if isMisspelled(&members, want) {
				return &FormError{invalidRequest("member %s must be spelled %q", clipName(members.RawKey()), want)}
			}
		}
	}
	return nil
}

// isMisspelled reports whether the name of a member is want but for letter case.
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

// clipName returns the beginning of a member name, which is shown to a peer.
func clipName(raw []byte) string {
	const most = 64
	s, more := jsonwire.UnquoteString(raw), ""
	if len(raw) > most {
		s, more = string(raw[:most]), "…" // its escapes may be cut, so they stay
	}
	return strconv.Quote(strings.ToValidUTF8(s, "")) + more
}
