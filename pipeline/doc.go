// Package pipeline runs deployed pipelines: what the queue hands out becomes runs, runs go through the steps of their
// plan, what they publish is stored by the one way in, and every run leaves a row in the history.
//
// Owns: runs and their order, lanes and slots, waits, the publishers of derived values, the cursor up to which triggers
// are done with, schedules, replays, dry runs, what pipelines cost.
//
// Must not know: MQTT, HTTP, how the queue and the history keep their records, any one type of node.
//
// Called by: web, cmd/millrace. Calls: pipeline/definition for plans, pipeline/queue, pipeline/history,
// pipeline/trigger, uns for derived values, historian/kv for attempts.
package pipeline
