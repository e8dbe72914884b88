// Package auth knows who may do what: API clients with their secrets and grants, people with their passwords, sessions and
// tokens. It keeps the audit log and the keys that seal secrets at rest.
//
// It owns the records under auth/ in the box's record store, the keyed hashes of every secret, the rule that decides a topic
// ([Policy]) and the moment at which a changed rule counts for sessions that are already running ([Principal.Policy]).
//
// It must not know MQTT packets, HTTP, sessions of MQTT, or what is stored on a topic. Nothing of Millrace is imported but the leaf
// historian/kv.
//
// Called by broker (SignIn, Policy), web (the REST of clients and tokens) and cmd (Open, Close). Calls the record store and
// the injected clock, randomness and key file, nothing else; it starts no goroutine (cmd calls [Book.Tidy] once a minute).
//
// The reasons behind the shapes are in DESIGN.md.
package auth
