// Package historian keeps samples of series on a disk of its own: every group of values durably in a log
// before it is acknowledged, later in compressed chunks by retention class, checkpoint and series.
//
// It owns the directory it is opened in, its formats (FORMAT.md), sequence numbers, receipt stamps, and the
// watch over free space and fsync. It must not know MQTT, topics beyond a name, schemas or grants. Called by
// uns; calls Pebble and historian/datadir. Design decisions and figures are in DESIGN.md.
package historian
