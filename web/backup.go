package web

import (
	"context"
	"errors"
	"net/http"
	"time"

	"millrace/auth"
)

// What a Backups refuses. The text of the error, which wraps one of these, is for people.
var (
	ErrBackupRunning = errors.New("web: a backup is running")
	ErrBackupTarget  = errors.New("web: no such target")
	ErrBackupRoot    = errors.New("web: backup.root is not set")
	ErrBackupSpace   = errors.New("web: no space for a backup")
)

// Backups makes backups of the box, one at a time.
type Backups interface {
	// Begin starts one into dir, with the files of previous linked ("": none), and returns at once. local callers name any
	// folder by its absolute path; others one below backup.root by its name.
	Begin(dir, previous string, local bool) error
	// Backup tells of the one under way, or the last.
	Backup() BackupState
	// Cancel gives up the one under way; false when there is none.
	Cancel() bool
}

// BackupState is the answer of GET /backup.
type BackupState struct {
	State       string     `json:"state" enum:"none,running,done,failed,cancelled" doc:"none: no backup since the start"`
	Dir         string     `json:"dir,omitempty" doc:"Folder of the backup, on the box"`
	Previous    string     `json:"incremental_from,omitempty" doc:"Backup whose files it shares"`
	Started     *time.Time `json:"started,omitempty" doc:"When it was asked for"`
	Ended       *time.Time `json:"ended,omitempty" doc:"When it ended; absent while it runs"`
	Phase       string     `json:"phase,omitempty" doc:"snapshot, copy or finish"`
	Bytes       int64      `json:"bytes" doc:"Bytes done"`
	Total       int64      `json:"total_bytes" doc:"Bytes to do; 0 while that is not known"`
	Linked      int64      `json:"linked_bytes" doc:"Of bytes, those shared with the earlier backup"`
	Taken       *time.Time `json:"taken,omitempty" doc:"Of one that is done: all that was acknowledged before is in it"`
	Sequence    uint64     `json:"sequence,omitempty" doc:"Of one that is done: number of the last value before it was taken"`
	Error       string     `json:"error,omitempty" doc:"Why it failed"`
	LastSuccess *time.Time `json:"last_success,omitempty" doc:"When the newest whole backup was taken, also before a restart"`
	LastDir     string     `json:"last_dir,omitempty" doc:"Where it lies, if nobody moved it"`
}

func (w *Web) addBackup() {
	type nothing struct{}
	type backupIn struct {
		Body struct {
			Dir      string `json:"dir" minLength:"1" maxLength:"4096" doc:"Name of the new backup below backup.root; through the admin socket an absolute path as well"`
			Previous string `json:"incremental_from,omitempty" maxLength:"4096" doc:"An earlier backup, named in the same way, whose unchanged files are shared"`
		} `nameHint:"BackupRequest"`
	}
	type backupOut struct{ Body BackupState }
	rule := rule{role: auth.RoleAdmin}
	register(w, route{method: http.MethodPost, path: "/backup", id: "begin-backup", tag: "Box", rule: rule, status: http.StatusAccepted, conflicts: []int{409},
		summary: "Begin a backup", doc: "It is made on the box while values are stored, one at a time; GET /backup tells how far it is."},
		func(ctx context.Context, c *caller, in *backupIn) (*backupOut, error) {
			if err := w.parts.Backups.Begin(in.Body.Dir, in.Body.Previous, ctx.Value(localKey{}) != nil); err != nil {
				return nil, ofBackup(err)
			}
			if err := w.noted(c, auth.Event{Category: "backup", Action: "begin", ID: in.Body.Dir}, nil); err != nil {
				return nil, err
			}
			return &backupOut{Body: w.parts.Backups.Backup()}, nil
		})
	register(w, route{method: http.MethodGet, path: "/backup", id: "get-backup", tag: "Box", rule: rule,
		summary: "How the backup is doing", doc: "The one under way, or the last one since the start of the box."},
		func(context.Context, *caller, *nothing) (*backupOut, error) {
			return &backupOut{Body: w.parts.Backups.Backup()}, nil
		})
	register(w, route{method: http.MethodDelete, path: "/backup", id: "cancel-backup", tag: "Box", rule: rule, status: http.StatusAccepted, missing: true,
		summary: "Give up the backup under way", doc: "Nothing of it stays."},
		func(_ context.Context, c *caller, _ *nothing) (*backupOut, error) {
			if !w.parts.Backups.Cancel() {
				return nil, problem(http.StatusNotFound, "no_backup_running", "no backup is being made", "")
			}
			if err := w.noted(c, auth.Event{Category: "backup", Action: "cancel"}, nil); err != nil {
				return nil, err
			}
			return &backupOut{Body: w.parts.Backups.Backup()}, nil
		})
}

func ofBackup(err error) error {
	var p *Problem
	switch {
	case errors.Is(err, ErrBackupRunning):
		p = problem(http.StatusConflict, "backup_running", err.Error(), "GET /api/v1/backup tells how far it is, DELETE gives it up")
		p.retry = 10
	case errors.Is(err, ErrBackupRoot):
		p = problem(http.StatusUnprocessableEntity, "backup_root_unset", "this box names no folder for backups over the network", "set backup.root in its configuration, or run `millrace backup create` on the box")
		p.Field = "dir"
	case errors.Is(err, ErrBackupTarget):
		p = invalid("dir", err.Error(), "")
	case errors.Is(err, ErrBackupSpace):
		p = problem(http.StatusConflict, "no_space", err.Error(), "")
	default:
		return err
	}
	return p
}
