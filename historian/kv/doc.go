// Package kv keeps small records (clients, sessions, settings) on a Pebble of its own.
//
// It owns the directory it is opened in and nothing of what its callers' keys mean; callers share one store
// by giving their keys different prefixes. It must not know the historian. Called by auth, broker, pipeline
// and web; calls Pebble and historian/datadir.
package kv
