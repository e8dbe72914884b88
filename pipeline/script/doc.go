// Package script evaluates what people write in pipelines: `{{ }}` templates, expressions and JavaScript function bodies,
// under deadlines and bounds.
//
// Owns: the language, its fast path, goja and its pools, deadlines. Must not know: nodes, runs, topics.
// Called by: pipeline/node, pipeline/nodes, pipeline/trigger, pipeline/definition. Calls: pipeline/value.
package script
