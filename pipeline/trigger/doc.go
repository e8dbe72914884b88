// Package trigger turns stored values into entries of the queue: it reads the historian's log in order, finds the pipelines
// that want a value, holds back what their triggers' settings hold back, and puts the rest.
//
// Owns: the table of triggers and its match sets, the gates before the queue, the follower and its place in the log.
//
// Must not know: how runs are queued beyond Put, executed or kept; MQTT; who may deploy.
//
// Called by: pipeline (Follower, and Change for what is deployed). Calls: uns for topics and filters, historian for its
// samples, pipeline/definition for plans, pipeline/queue for entries, pipeline/script for filters.
package trigger
