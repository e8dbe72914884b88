// Package queue keeps runs between the trigger that starts them and the worker that executes them, in three lanes.
//
// Owns: entries and frames, the lanes and the rule by which they take turns, bounds and what is shed when they are met.
//
// Must not know: plans, nodes, how runs are executed, topics beyond their text.
//
// Called by: pipeline/trigger, which puts; pipeline, which takes; cmd. Calls: none of ours.
package queue
