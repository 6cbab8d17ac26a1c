// Package hosts finds the MCP servers (https://modelcontextprotocol.io/specification) that the hosts on this machine have
// configured, and rewrites those entries so that a tap stands between host and server.
//
// [Find] lists, [Resolve] finds the one server that a user names, [Server.Expand] fills in the variables in it. [Open] reads a file
// to be edited: [Document.Wrap] and [Document.Unwrap] change an entry in memory, [Document.Diff] shows what that does, and
// [Document.Save] writes it.
//
// # Files
//
// JSON, JSON with comments and trailing commas, and TOML. Edits are splices: every byte outside the values that change stays as
// it was. Hosts keep their servers in files of their users and in files of projects; the latter are searched from the working
// directory up to the root of the repository or to the home folder, and without either in the working directory alone. A file is
// at most [MaxFileBytes] long and holds at most [MaxValues] values, [MaxDepth] deep. Nothing that a file says is ever run here.
//
// Not read is what is configured elsewhere than in files, in plugins and extensions, and in YAML (Goose, Continue).
//
// # Secrets
//
// Environment variables, headers and arguments hold secrets. [Server.Redacted] and [Document.Diff] hide the first two; for
// arguments the caller brings its own judgement. Errors never quote what a file says, only names and places.
//
// # Concurrency
//
// Everything here is for one goroutine at a time, but for [Env], which may be shared. Nothing is kept between calls except on disk. A file that changes between
// [Open] and [Document.Save] is not overwritten, see [ErrChanged].
//
// # Errors
//
// What is wrong with a file is a [*ParseError] with line and column. Resolve returns a [*NotFoundError] or an [*AmbiguousError],
// Expand an [*ExpandError]. Editing returns [ErrWrapped], [ErrNotWrapped], [ErrNoCommand], [ErrRemote], [ErrNoEntry],
// [ErrChanged] and [ErrNoState], some wrapped with what they are about, or errors of the file system.
//
// # Compatibility
//
// Where hosts keep their files is theirs to change. The places are those of their documentation in the autumn of 2026.
package hosts
