package web_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"sync"
	"testing"

	"millrace/auth"
	"millrace/web"
)

// shelfBackups makes no backups. It refuses those named busy, full, missing and rootless, each for its reason.
type shelfBackups struct {
	mu    sync.Mutex
	state web.BackupState
	local bool
}

func (s *shelfBackups) Begin(dir, previous string, local bool) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch dir {
	case "busy":
		return fmt.Errorf("one runs: %w", web.ErrBackupRunning)
	case "full":
		return fmt.Errorf("the disk is full: %w", web.ErrBackupSpace)
	case "missing":
		return fmt.Errorf("no such folder: %w", web.ErrBackupTarget)
	case "rootless":
		return web.ErrBackupRoot
	}
	s.state, s.local = web.BackupState{State: "running", Dir: dir, Previous: previous, Phase: "copy", Bytes: 1, Total: 2}, local
	return nil
}

func (s *shelfBackups) Backup() web.BackupState {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.state
}

func (s *shelfBackups) Cancel() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	was := s.state.State == "running"
	s.state.State = "none"
	return was
}

// Each refusal has a status and a code of its own; what runs is told.
func TestBackupRoutes(t *testing.T) {
	b := newBox(t)
	begin := func(body string) reply {
		a := b.call(auth.RoleAdmin, http.MethodPost, "/backup")
		a.body = body
		return a.do()
	}
	for _, tt := range []struct {
		dir  string
		code int
		says string
	}{{"busy", 409, "backup_running"}, {"full", 409, "no_space"}, {"missing", 422, "invalid"}, {"rootless", 422, "backup_root_unset"}} {
		r := begin(`{"dir":"` + tt.dir + `"}`)
		r.refused(t, tt.code, tt.says, map[bool]string{true: "dir"}[tt.code == 422])
	}
	r := begin(`{"dir":"monday","incremental_from":"sunday"}`)
	var at web.BackupState
	if err := json.Unmarshal([]byte(r.text), &at); r.StatusCode != 202 || err != nil || at.State != "running" || at.Previous != "sunday" {
		t.Errorf("begun: %d %s %v", r.StatusCode, r.text, err)
	}
	if r := b.call(auth.RoleAdmin, http.MethodDelete, "/backup").do(); r.StatusCode != 202 {
		t.Errorf("given up: %d %s", r.StatusCode, r.text)
	}
	b.call(auth.RoleAdmin, http.MethodDelete, "/backup").do().refused(t, 404, "no_backup_running", "")
}
