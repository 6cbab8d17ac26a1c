// Package interop holds no code of its own: its tests let hosts that were
// written elsewhere drive the mcpwire server over real pipes. It is a module of
// its own so that the SDKs it compares with stay out of mcpwire's go.mod.
//
// Every host starts the server through a witness, a re-execution of the test
// binary that passes bytes on unchanged and writes down both directions, the
// signals and the exit code. A test therefore asserts on two things: what the
// host saw, and what crossed the pipe.
package interop
