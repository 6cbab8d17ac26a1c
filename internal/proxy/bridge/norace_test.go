//go:build !race

package bridge

const (
	large = 8 << 20 // bytes of a result
	flood = 128     // MiB that a client requests and does not read
)
