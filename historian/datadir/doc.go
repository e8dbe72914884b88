// Package datadir takes hold of a directory that one Pebble store of the box lives in.
//
// It owns the mark file that tells our directories from foreign ones, the format version in it, the lock, and
// the wording of what can be wrong with a directory. It must not know what is stored. Called by historian and
// historian/kv; calls Pebble's file system.
package datadir
