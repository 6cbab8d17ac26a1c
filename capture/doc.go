// Package capture is the recording format of mcpwire's instruments: what went over the wire of the Model Context Protocol
// (https://modelcontextprotocol.io/specification), byte for byte, in an order in which it can have happened. It writes, reads, pairs and redacts.
// The format, with its JSON Schema, is in doc/capture-format.md.
//
// A capture is text: one JSON object a line, each an [Event]. A [Writer] records, and never makes the wire wait: [Writer.Record] numbers and copies, and a
// goroutine writes. A [Reader] streams. [Pairs] and [Pairer] find which response belongs to which request. An [Encoder] writes events that have their numbers and times already, for
// conversions.
//
// # Redaction
//
// On unless it is turned off by name (Options.Unredacted, [NewUnredactedEncoder]). Hidden are, before anything is written:
//
//   - values of HTTP headers that are not on a short list of harmless ones. What Authorization, cookies, session ids and other headers with the name of a secret held
//     is hidden wherever it comes up later in the same capture, too;
//   - values of members, parameters, variables and arguments of commands with the name of a secret ("password", "apiKey", "access_token", "sessionId" …), in JSON, in JSON within
//     strings, in URLs, forms, tags and text, percent-encoded or with character references; values of environment variables;
//   - base64 that stands for a text with a secret;
//   - what has the shape of a secret wherever it stands: private keys in PEM, tokens of the form of a JWT, credentials behind "Bearer" and "Basic", the keys of issuers that mark them by a prefix,
//     users and passwords in URLs;
//   - bodies in parts, or compressed, as a whole.
//
// A secret becomes ~redacted:KIND:HASH:SIZE~. The hash is keyed by a random key that is stored nowhere, so that equal secrets can be seen to be equal within a capture, and nothing else about them; SIZE is the power of two that
// its length does not exceed. Strings stay strings, numbers become 0, so that what reads the capture still finds the structure. JSON Schemas in the places where the protocol has them are left alone, but for
// values they propose, and so are descriptions in lists, but for what has the shape of a secret. Event.Redacted lists the places. Redaction is a net, not a proof: a secret that has neither a telling name nor a telling shape, or that is encoded in a way not named here,
// is not recognised. [Redaction].Secrets hides what is known beforehand.
//
// # Concurrency
//
// A [Writer], a [File] and a [Lines] may be used by any number of goroutines at once. An [Encoder], a [Reader], a [Redactor] and a [Pairer] are for one goroutine at a time. There is no package
// state that changes. A Writer has one goroutine, and Close waits for it unless the disk hangs.
//
// # Errors
//
// Recording has none: what could not be recorded or written is counted, and the capture has a gap in its place; [Writer.Err] and Close tell of the first error. Close may wrap
// [ErrUnfinished]. [Create] returns those of the file system, [ErrAppendCompressed] and [ErrNotPrivate]. Readers return those of the source, [ErrVersion], [ErrNotCapture], [ErrUnpacked] and [ErrFollowCompressed]; what is wrong
// with a single line is no error but a gap.
//
// # Compatibility
//
// Readers pass over members and kinds they do not know, so that new ones can be added without a new version. Modes of files mean nothing on Windows, where the folder decides who may read.
package capture
