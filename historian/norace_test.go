//go:build !race

package historian_test

const raced = false
