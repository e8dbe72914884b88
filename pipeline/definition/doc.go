// Package definition is pipelines as people write them: reading, checking, comparing and compiling definitions, and the
// shelf on which drafts and versions lie.
//
// Owns: the text forms (JSON, YAML), every fault a definition can have, the compiled Plan, drafts, versions and what is
// deployed.
//
// Must not know: how runs are queued and executed, HTTP.
//
// Called by: pipeline, which runs Plans; pipeline/trigger, which matches their triggers; web and cmd. Calls: pipeline/node,
// pipeline/script, pipeline/value, uns for filters, historian/kv.
package definition
