// Package seal encrypts texts that a server hands to a client and gets back later. The
// client can store a sealed text but neither read nor change it. A sealed text is ASCII, in
// the URL-safe base64 alphabet, and reveals only the length of its content.
//
// Each text is encrypted by AES-256-GCM (https://csrc.nist.gov/pubs/sp/800/38/d/final) with its own
// key, which HKDF (https://www.rfc-editor.org/rfc/rfc5869) derives from the ring's secret, the
// purpose and a random salt. No two texts share a key, so a secret may seal any number of them: the
// limit of 2^32 random nonces for one key of AES-GCM does not apply.
//
// # Concurrency
//
// Many goroutines may use a Ring at once, also with Replace.
//
// # Errors
//
// Open has one error for every invalid text, since any detail would help an attacker.
package seal
