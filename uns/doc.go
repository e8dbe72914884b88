// Package uns is the Unified Namespace: it knows what a topic may be called, what a payload says, what a topic takes,
// and it is the one way in for values, whoever sends them.
//
// Owns: topic names and filters, the envelope, timestamps, schemas and settings of topics, the catalog of topics, rates
// and limits, verdicts, and Ingress with Accept, Announce and Write.
//
// Must not know: MQTT packets, sessions and reason codes (broker maps verdicts to them), who may do what (auth), how
// samples are kept (historian, behind Store and Reader).
//
// Called by: broker for every publish, web for topics and test publishes, pipeline for its own publishes, cmd for
// wiring. Calls: historian for its types and, through Store and Reader, its store; Live to hand stored values on.
package uns
