// Package node is the contract between the engine of pipelines and the types of nodes that pipelines are built from.
//
// Owns: what a type says of itself (Spec), how a node is made from its parameters (Type.New), what it is called with
// (Call) and what it answers (Result), and the settings that every node has.
//
// Must not know: any one type of node (pipeline/nodes), how runs are queued, ordered or stored (pipeline), topics
// beyond their paths.
//
// Called by: pipeline/nodes, which implements it; pipeline/definition, which validates and compiles with it; pipeline,
// which runs it; web, which shows the Specs. Calls: pipeline/value and pipeline/script.
package node
