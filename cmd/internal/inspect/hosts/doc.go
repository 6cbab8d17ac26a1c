// Package hosts finds the MCP servers
// (https://modelcontextprotocol.io/specification) that hosts on this machine
// are configured with. It also edits these entries so that a tap runs between
// host and server.
//
// [Find] lists servers, [Resolve] finds the one that a user names, and
// [Server.Expand] expands its variables. [Open] reads a file for editing:
// [Document.Wrap] and [Document.Unwrap] change an entry in memory,
// [Document.Diff] shows the change, and [Document.Save] writes it.
//
// # Files
//
// The package reads JSON, JSON with comments and trailing commas, and TOML. An
// edit replaces only the bytes of the values that change. Hosts keep servers in
// files of the user and in files of projects. It searches for project files
// from the working directory up to the root of the repository or the home
// folder; outside both, only in the working directory. A file has at most
// [MaxFileBytes] bytes and [MaxValues] values, nested at most [MaxDepth] deep.
// The package never runs anything that a file names.
//
// It does not read configuration outside of files, in plugins and extensions,
// or in YAML (Goose, Continue).
//
// # Secrets
//
// Environment variables, headers and arguments contain secrets.
// [Server.Redacted] and [Document.Diff] hide the first two; the caller must
// redact arguments. Errors quote only names and locations from a file.
//
// # Concurrency
//
// An [Env] may be shared. Other values must not be used by several goroutines
// at once. State between calls is kept only on disk. [Document.Save] does not
// overwrite a file that has changed since [Open]; see [ErrChanged].
//
// # Errors
//
// A malformed file leads to a [*ParseError] with line and column. Resolve
// returns a [*NotFoundError] or an [*AmbiguousError], Expand an [*ExpandError].
// Editing returns [ErrWrapped], [ErrNotWrapped], [ErrNoCommand], [ErrRemote],
// [ErrNoEntry], [ErrChanged] or [ErrNoState], some wrapped with the subject, or
// file system errors.
//
// # Compatibility
//
// Hosts may move their files at any time. The locations are those of their
// documentation in the autumn of 2026.
package hosts
