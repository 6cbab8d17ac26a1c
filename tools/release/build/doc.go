// Command build makes the files of a release from a clean checkout: archives and packages of the
// program for each system, an npm package, an OCI image, a bill of materials and checksums.
//
//	cd tools/release && go run ./build -version 0.1.0 -out ../../dist
//
// The files depend only on the commit, the version and the Go release: two builds have the same
// bytes. tools/release/verify shows that, and installs what was built.
package main
