// Package nodes is the types of nodes that pipelines are built from, one file each: what the type says of itself and what it
// does.
//
// Owns: the parameters, ports and effects of every type, and All, the list of them.
//
// Must not know: how runs are queued, ordered and stored; whoever calls Run.
//
// Called by: cmd, which hands the list to pipeline/definition. Calls: pipeline/node, pipeline/script, pipeline/value.
package nodes
