//go:build race

package historian_test

// raced says that the race detector slows the tests down several times.
const raced = true
