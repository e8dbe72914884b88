// Package backup copies the stores of a box into a folder while they are written, checks such a folder, and makes a
// data folder of it again.
//
// Owns: the layout of a backup (FORMAT.md), its manifest, the order in which stores are cut, links between backups, the
// rule of one at a time. Must not know: what the stores hold, Pebble, HTTP. Called by: cmd/millrace, which hands the
// stores in as Parts. Calls: nothing of ours.
package backup
