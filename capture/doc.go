// Package capture implements the recording format of mcpwire: the traffic of the
// Model Context Protocol (https://modelcontextprotocol.io/specification), byte for
// byte, in causal order. It writes, reads, pairs and redacts captures. The format,
// with its JSON Schema, is in doc/capture-format.md.
//
// A capture is text with one JSON object per line, each an [Event]. A [Writer] records and never
// blocks the traffic: [Writer.Record] numbers and copies an event, and a goroutine writes it. A
// [Reader] streams events. [Pairs] matches responses with their requests. An [Encoder] writes
// events that already have numbers and times, for conversions.
//
// # Redaction
//
// Redaction is on unless the caller turns it off by name ([Redaction].Off). It hides these before
// anything is written:
//
//   - values of HTTP headers that are not on a short list of harmless ones. The values of
//     Authorization, cookies, session ids and other headers with the name of a secret are
//     also hidden wherever they occur later in the same capture;
//   - values of members, parameters, variables and command arguments with the name of a
//     secret ("password", "apiKey", "access_token", "sessionId" …), in JSON, in JSON within
//     strings, in URLs, forms, tags, tables and text, percent-encoded or with character references;
//     values of environment variables. What stands in the place of a value stays, such as
//     "${TOKEN}" or "(not configured)", and so does an expression of a program;
//   - base64 of a text with a secret;
//   - anything with the shape of a secret: PEM private keys, tokens in the form of a JWT,
//     credentials after "Bearer" and "Basic", keys whose issuers mark them with a prefix,
//     users and passwords in URLs;
//   - bodies that are compressed or recorded in parts, as a whole.
//
// A secret becomes ~redacted:KIND:HASH:SIZE~. The hash uses a random key that is not stored: it
// shows that two secrets in a capture are equal, and nothing else about them. SIZE is the smallest
// power of two, at least 8, that the length does not exceed. Strings stay strings and numbers
// become 0, so that readers still find the structure. JSON Schemas in the places where the protocol
// has them keep everything but the values they propose. Descriptions in lists keep everything but
// text with the shape of a secret. Event.Redacted lists the places.
//
// Redaction is a net, not a proof. It misses a secret that has neither a telling name
// nor a telling shape, or that has an encoding not named here. [Redaction].Secrets
// hides secrets that are known beforehand.
//
// # Concurrency
//
// A [Writer] and a [File] are safe for concurrent use. An [Encoder], a [Reader]
// and a [Redactor] are not. The package has no mutable global state. A
// Writer has one goroutine; Close waits for it until the close timeout.
//
// # Errors
//
// Recording returns no errors. The Writer counts the events that it could not record or write, and
// the capture has a gap in their place; [Writer.Flush] and Close return the first error. Close may
// wrap [os.ErrDeadlineExceeded]. [Create] returns errors of the file system. Readers return errors
// of the source, [ErrVersion] and [ErrNotCapture]. An unreadable line becomes a gap, not an error.
//
// # Compatibility
//
// Readers skip unknown members and kinds, so that the format can gain new ones without a new
// version. File modes have no effect on Windows, where the folder decides who may read.
package capture
