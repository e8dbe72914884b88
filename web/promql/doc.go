// Package promql reads and answers the part of Prometheus' query language that stored history can answer exactly: selectors,
// functions over time, aggregations over series, arithmetic and comparisons.
//
// Owns: the language and its evaluation on a grid of times. What it does not know it refuses by name.
//
// Must not know: HTTP, callers, how values are stored (Source).
//
// Called by: web. Calls: none of ours.
package promql
