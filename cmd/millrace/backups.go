package main

import (
	"errors"
	"fmt"
	"time"

	"millrace/backup"
	"millrace/web"
)

// backups is backup.Runner as web sees it.
type backups struct {
	runner  *backup.Runner
	options backup.Options
}

// Begin implements web.Backups.
func (b backups) Begin(dir, previous string, local bool) error {
	to := backup.Target{}
	var err error
	if to.Dir, err = b.options.Place(dir, local); err == nil && previous != "" {
		to.Previous, err = b.options.Place(previous, local)
	}
	if err == nil {
		err = b.runner.Begin(to)
	}
	for _, row := range []struct{ is, as error }{
		{backup.ErrRunning, web.ErrBackupRunning}, {backup.ErrNoRoot, web.ErrBackupRoot}, {backup.ErrTarget, web.ErrBackupTarget},
		{backup.ErrNoBackup, web.ErrBackupTarget}, {backup.ErrNoSpace, web.ErrBackupSpace},
	} {
		if errors.Is(err, row.is) {
			return refusedBackup{err, row.as}
		}
	}
	if err != nil {
		return fmt.Errorf("backup: %w", err)
	}
	return nil
}

// refusedBackup has the words of one error and is another.
type refusedBackup struct{ words, is error }

func (r refusedBackup) Error() string { return r.words.Error() }
func (r refusedBackup) Unwrap() error { return r.is }

// Backup implements web.Backups.
func (b backups) Backup() web.BackupState {
	s := b.runner.State()
	out := web.BackupState{State: s.State, Dir: s.Dir, Previous: s.Previous, Phase: s.Progress.Phase, Bytes: s.Progress.Bytes,
		Total: s.Progress.Total, Linked: s.Progress.Linked, Sequence: s.Sequence, Error: s.Error, LastDir: s.LastDir}
	for _, row := range []struct {
		at  time.Time
		out **time.Time
	}{{s.Started, &out.Started}, {s.Ended, &out.Ended}, {s.Taken, &out.Taken}, {s.LastSuccess, &out.LastSuccess}} {
		if !row.at.IsZero() {
			at := row.at.UTC()
			*row.out = &at
		}
	}
	return out
}

// Cancel implements web.Backups.
func (b backups) Cancel() bool { return b.runner.Cancel() }
