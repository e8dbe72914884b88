// Package web is the box's face over HTTP: REST under /api/v1 with its OpenAPI document, health, metrics,
// the status page, and the admin socket, which speaks the same REST to whoever may open its file.
//
// Owns: the two listeners, who may call which route, the shape of answers and problems, cursors, the one
// table from error to status (error.go), the pages under assets/.
//
// Must not know: MQTT and the broker package (sessions arrive as [Session] through [Parts]), how values are
// stored, how grants are compiled.
//
// Called by: cmd/millrace, which hands in [Parts]. Calls: auth (who is it, may they), uns (names, catalog,
// ingress), historian (rows of history, latest, state) through [History].
package web
