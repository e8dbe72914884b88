package main

import (
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"testing"
	"time"
)

// With syncWrites off a kill loses nothing that was acknowledged: the real program, killed at random moments under load. In
// between it starts anew from what the kill left.
func TestKillWithoutSyncWrites(t *testing.T) {
	t.Setenv("MILLRACE_HISTORIAN_PEBBLE_SYNCWRITES", "false")
	t.Setenv("MILLRACE_HISTORIAN_RING", t.TempDir()) // /dev/shm need not be there; any file outlives a process
	rounds := 4
	if os.Getenv("MILLRACE_LONG") != "" {
		rounds = 50
	}
	p := serve(t, filepath.Join(t.TempDir(), "data"))
	var senders []*sender
	for round := range rounds {
		stop := make(chan struct{})
		ended := make(chan struct{}, 3)
		for range 3 {
			s := &sender{id: fmt.Sprint("dev", len(senders))}
			s.secret = p.secret(s.id)
			senders = append(senders, s)
			go func() {
				_ = s.run(p.mqtt, stop) // the kill ends it
				ended <- struct{}{}
			}()
		}
		latest := senders[len(senders)-3:]
		for deadline := time.Now().Add(20 * time.Second); latest[0].acked.Load() == 0 && time.Now().Before(deadline); {
			time.Sleep(time.Millisecond)
		}
		time.Sleep(time.Duration(50+rand.IntN(250)) * time.Millisecond) // any moment will do
		p.kill()
		close(stop)
		for range latest {
			<-ended
		}
		p = serve(t, p.data)
		for _, s := range latest {
			got := p.numbers("load/" + s.id)
			for i, n := range got {
				if n != int64(i+1) {
					t.Fatalf("round %d, %s: place %d holds %d", round, s.id, i, n)
				}
			}
			if acked := s.acked.Load(); acked == 0 || int64(len(got)) < acked {
				t.Errorf("round %d, %s: %d values, %d were acknowledged", round, s.id, len(got), acked)
			}
		}
	}
}
