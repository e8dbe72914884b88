// Package perf measures a box from outside and drives simulated devices against it.
//
// Owns: the load generator (wire.go, session.go, fleet.go, traffic.go, stats.go), what it sends and remembers (values.go,
// journal.go), the boxes it starts or attaches to (box.go, rest.go), the meters on them (meters.go), the runs
// (ingest.go, crash.go, compare.go), the read-back that decides lost, doubled and different (match.go,
// readback.go), the scenarios of single figures (figure.go; subscribers.go with mosquitto.go, retained.go, stalled.go,
// reconnect.go and idle.go with crowd.go), the written report (report.go) and the demo plant (plant.go).
// Must not know: any other package of this module. It speaks MQTT, REST and /proc, as a stranger would, so
// that a fault in the box cannot hide in code both share.
// Called by: cmd/millrace (`millrace perf …`, `serve --demo`). Calls: nothing of ours.
//
// The generator is Linux only (epoll). See DESIGN.md for how each figure is taken.
package perf
