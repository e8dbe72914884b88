// Package history keeps what became of runs: rows, counts, traces, dead letters, the rows of runs that wait for long, and
// the cursor up to which triggers are done with.
//
// Owns: names of runs, the keys and bytes of its rows, which runs are kept and for how long.
//
// Must not know: plans, how runs are executed, HTTP.
//
// Called by: pipeline, web, cmd. Calls: historian/kv.
package history
