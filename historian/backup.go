package historian

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/vfs"

	"millrace/historian/datadir"
)

// kind is what the mark file of a historian says.
func kind() datadir.Kind { return datadir.Kind{Part: "historian", Version: formatVersion} }

// Snapshot makes dir, which must not exist and must lie on the store's file system, a durable copy of the store
// as it is now: every value acknowledged before the call is in it. Tables are hard links, so it takes
// milliseconds and little room at first, but holds on to whatever the store drops later: copy it and delete it
// soon. Values go on being stored meanwhile. After an error dir is not there, or may be removed.
func (s *Store) Snapshot(dir string) error {
	if err := s.enter(); err != nil {
		return err
	}
	defer s.inUse.Done()
	// Pebble copies the log a moment after it has looked at the tables.
	s.cutMu.Lock()
	err := s.db.Checkpoint(dir, pebble.WithFlushedWAL())
	s.cutMu.Unlock()
	if err != nil {
		return fmt.Errorf("historian: snapshot into %s: %w", dir, err)
	}
	if err := s.report.failure(); err != nil {
		return err
	}
	if err := datadir.CopyMark(s.o.FS, dir, kind()); err != nil {
		return fmt.Errorf("historian: snapshot into %s: %w", dir, err)
	}
	return nil
}

// Hold takes hold of the store in dir as Open would, without opening it: until Close of the result no process can
// write in it. It fails where no store of ours is, or one that is in use.
func Hold(dir string) (io.Closer, error) {
	if err := datadir.Look(vfs.Default, dir, kind()); err != nil {
		return nil, err
	}
	c, err := datadir.Take(vfs.Default, dir, kind())
	if err != nil {
		return nil, err
	}
	return c.Lock(), nil
}

// Verify opens the store in dir for reading alone and, with every, reads all there is, so that each block meets its
// checksum. Nothing in dir is changed. The error says what does not open or read.
func Verify(ctx context.Context, dir string, every bool) error {
	if err := datadir.Look(vfs.Default, dir, kind()); err != nil {
		return err
	}
	r := newReporter(slog.New(slog.DiscardHandler), nil)
	o := pebbleOptions(datadir.ReadOnly(vfs.Default), nil, r, 0)
	o.ReadOnly = true
	db, err := pebble.Open(dir, o)
	if err != nil {
		return fmt.Errorf("historian: %s does not open: %w", dir, err)
	}
	if every {
		err = datadir.ReadAll(ctx, db)
	}
	if err = errors.Join(err, db.Close(), r.failure()); err != nil {
		return fmt.Errorf("historian: %s: %w", dir, err)
	}
	return nil
}
