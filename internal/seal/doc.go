// Package seal makes texts that a stranger can keep but neither read nor change: what a server hands to a client to get it back later. A sealed
// text is ASCII, of the URL-safe base64 alphabet, and says nothing of what is in it but its length.
//
// Each text is encrypted by AES-256-GCM (https://csrc.nist.gov/pubs/sp/800/38/d/final) with a key of its own, which HKDF
// (https://www.rfc-editor.org/rfc/rfc5869) derives from the ring's secret, the purpose and a random salt. No two texts share a key, so that a
// secret may seal any number of them: the bound of 2^32 random nonces for one key of AES-GCM is never in sight.
//
// # Concurrency
//
// A Ring may be used by any number of goroutines, Replace included.
//
// # Errors
//
// Open has one error for whatever is wrong with a text, since every other answer would help the one who made it.
package seal
