// Package value is the exact JSON tree that nodes of pipelines hand on: digits and key order as they were sent, immutable,
// shared between goroutines without locks.
//
// Must not know: where values come from or go to. Called by: every package of pipeline. Calls: none of ours.
package value
