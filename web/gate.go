package web

import (
	"context"
	"time"
)

const (
	// gateSlots is how many large reads (history, latest, search) run at once: each holds up to maxPageBytes.
	gateSlots = 8
	gateWait  = 5 * time.Second
)

// gate bounds the memory of large reads. Full: the request waits up to gateWait, then gets 503 `busy`.
type gate chan struct{}

func newGate() gate { return make(gate, gateSlots) }

// enter takes a slot; the caller gives it back with leave when the error is nil.
func (g gate) enter(ctx context.Context) error {
	select {
	case g <- struct{}{}:
		return nil
	default:
	}
	wait := time.NewTimer(gateWait)
	defer wait.Stop()
	select {
	case g <- struct{}{}:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	case <-wait.C:
		return errBusy
	}
}

func (g gate) leave() { <-g }
