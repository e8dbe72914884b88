// Package broker speaks MQTT 3.1.1 and 5 with devices and subscribers. Its acknowledgement means stored.
//
// It owns: listeners, connections, frames, the publish hook, subscriptions, and the delivery of live values and
// ordinary messages. It must not know how a value is read, checked or stored (uns, historian), nor how grants are
// kept (auth), nor that pipelines and a web server exist.
//
// Called by: cmd/millrace (Open, Serve), uns.Ingress (Publish, as uns.Live), web through cmd (Sessions, Disconnect).
// Calls: uns.Ingress (Accept, Announce, Source), auth.Book (SignIn), auth.Policy, uns.Namespace, and the MQTT server
// library for CONNECT, SUBSCRIBE, UNSUBSCRIBE and PINGREQ. This is the only package that imports that library.
//
// DESIGN.md holds the decisions; conn.go is the place to start reading.
package broker
