// Package script evaluates what people write in pipelines: `{{ }}` templates, expressions and JavaScript function bodies,
// under deadlines and bounds.
//
// Owns: the language, goja and its pool of machines, deadlines, how exact values go in and come out.
//
// Must not know: nodes, runs, topics.
//
// Called by: pipeline/node, pipeline/nodes, pipeline/trigger, pipeline/definition. Calls: pipeline/value.
package script
