package perf_test

import (
	"context"
	"errors"
	"slices"
	"testing"
	"time"

	"millrace/perf"
)

// TestPlant runs the demo plant against the acceptor: every machine of three lines publishes every tag, and the
// same seed yields the same values.
func TestPlant(t *testing.T) {
	run := func() map[string][]string {
		a := newAcceptor(t, nil)
		p := perf.Plant{Address: a.address(), Every: 5 * time.Millisecond, Seed: 4,
			Credentials: func(machine string) (string, string, error) { return "demo", "a secret of 24 characters", nil }}
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		go func() { ended <- p.Run(ctx) }()
		waitFor(t, "every tag thrice", func() bool {
			a.mu.Lock()
			defer a.mu.Unlock()
			enough := 0
			for _, list := range a.values {
				if len(list) >= 3 {
					enough++
				}
			}
			return enough == 3*19
		})
		cancel()
		select {
		case err := <-ended:
			if err != nil {
				t.Error(err)
			}
		case <-time.After(patience):
			t.Fatal("the plant does not stop")
		}
		a.close()
		return a.stored(t)
	}
	one, two := run(), run()
	for path, list := range one {
		if !slices.Equal(list[:3], two[path][:3]) {
			t.Errorf("%s: %v, then %v", path, list[:3], two[path][:3])
		}
	}
	for _, path := range []string{"line1/press/temperature", "line2/oven/zone1/temperature", "line3/packer/running"} {
		if len(one[path]) == 0 {
			t.Errorf("nothing on %s", path)
		}
	}
}

// TestPlantReconnects cuts every connection once.
func TestPlantReconnects(t *testing.T) {
	a := newAcceptor(t, func(a *acceptor) { a.cut = func(total int) bool { return total <= 12 } })
	p := perf.Plant{Address: a.address(), Every: 5 * time.Millisecond, Credentials: func(string) (string, string, error) { return "demo", "", nil }}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- p.Run(ctx) }()
	waitFor(t, "values after the cuts", func() bool { a.mu.Lock(); defer a.mu.Unlock(); return a.total > 100 })
	cancel()
	if err := <-ended; err != nil {
		t.Error(err)
	}
}

func TestPlantStopsWithoutCredentials(t *testing.T) {
	fault := errors.New("no such client")
	p := perf.Plant{Address: "127.0.0.1:1", Credentials: func(string) (string, string, error) { return "", "", fault }}
	if err := p.Run(t.Context()); !errors.Is(err, fault) {
		t.Errorf("error %v", err)
	}
	if n := len(p.Machines()); n != 12 {
		t.Errorf("%d machines", n)
	}
}
