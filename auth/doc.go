// Package auth knows who may do what: API clients with their secrets and grants, and the access tokens of people.
//
// It owns the records under auth/ in the box's record store, the keyed hashes of every secret, the rule that decides a topic
// ([Policy]) and the moment at which a changed rule counts for sessions that are already running ([Principal.Policy]).
//
// It must not know MQTT packets, HTTP, sessions, or what is stored on a topic. Nothing of Millrace is imported but the leaf
// historian/kv.
//
// Called by broker (SignIn, Policy), web (the REST of clients and tokens) and cmd (Open, Close). Calls the record store and
// the injected clock and randomness, nothing else; it starts no goroutine.
//
// The reasons behind the shapes are in DESIGN.md.
package auth
