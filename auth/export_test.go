package auth

// For the tests in package auth_test.
var NewMemoryReplayCache = newMemoryReplayCache
