package queue

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"
)

func put(t *testing.T, q Queue, l Lane, seq uint64) {
	t.Helper()
	if err := q.Put(context.Background(), l, Entry{Seq: seq, Topic: "a", Value: []byte("1"), Refs: []Ref{{Pipeline: 1, Version: 1}}}); err != nil {
		t.Fatal(err)
	}
}

func TestMemoryKeepsTheOrderOfALane(t *testing.T) {
	q := NewMemory(Limits{MaxBytes: 1 << 20})
	for i := range uint64(200) {
		put(t, q, Normal, i+1)
	}
	put(t, q, High, 1000)
	if s := q.Stats(); s.Pending != [Lanes]int{1, 200, 0} {
		t.Errorf("pending %v", s.Pending)
	}
	next := uint64(1)
	for next <= 200 {
		f, err := q.Take(context.Background(), Normal)
		if err != nil {
			t.Fatal(err)
		}
		if len(f.Entries) > maxFrameRuns {
			t.Errorf("a frame of %d runs", len(f.Entries))
		}
		for _, e := range f.Entries {
			if e.Seq != next {
				t.Fatalf("sequence %d, want %d", e.Seq, next)
			}
			next++
		}
		f.Ack()
	}
}

func TestMemoryShedsTheOldest(t *testing.T) {
	var shed []uint64
	size := (&Entry{Topic: "a", Value: []byte("1"), Refs: make([]Ref, 1)}).size()
	q := NewMemory(Limits{MaxBytes: 3 * size, Shed: func(list []Entry) { shed = append(shed, list[0].Seq) }})
	for i := range uint64(5) {
		put(t, q, Lane(i%2), i+1)
	}
	if fmt.Sprint(shed) != "[1 2]" || q.Stats().ShedSize != 2 {
		t.Errorf("shed %v, counted %d", shed, q.Stats().ShedSize)
	}
}

func TestMemoryShedsByAge(t *testing.T) {
	now := time.Unix(1000, 0)
	q := NewMemory(Limits{MaxBytes: 1 << 20, MaxAge: time.Minute, Now: func() time.Time { return now }})
	put(t, q, Low, 1)
	now = now.Add(2 * time.Minute)
	put(t, q, Low, 2)
	f, err := q.Take(context.Background(), Low)
	if err != nil || len(f.Entries) != 1 || f.Entries[0].Seq != 2 || q.Stats().ShedAge != 1 {
		t.Errorf("took %v, %v; shed %d", f, err, q.Stats().ShedAge)
	}
}

func TestMemoryWaitsWhenFull(t *testing.T) {
	size := (&Entry{Topic: "a", Value: []byte("1"), Refs: make([]Ref, 1)}).size()
	q := NewMemory(Limits{MaxBytes: size, DiscardNewOnFull: true})
	put(t, q, Normal, 1)
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	if err := q.Put(ctx, Normal, Entry{Seq: 2}); !errors.Is(err, context.Canceled) {
		t.Errorf("Put into a full queue: %v", err)
	}
	done := make(chan error, 1)
	go func() { done <- q.Put(context.Background(), Normal, Entry{Seq: 2}) }()
	if _, err := q.Take(context.Background(), Normal); err != nil {
		t.Fatal(err)
	}
	if err := <-done; err != nil {
		t.Errorf("Put after there was room: %v", err)
	}
	q.Close()
	if _, err := q.Take(context.Background(), Normal); !errors.Is(err, ErrClosed) {
		t.Errorf("Take from a closed queue: %v", err)
	}
}

// TestTurn holds the rule: the highest first, and nobody is passed over more than the threshold allows.
func TestTurn(t *testing.T) {
	turn := NewTurn(100)
	var got [Lanes]int
	for range 10_200 {
		l, ok := turn.Next([Lanes]bool{true, true, true})
		if !ok {
			t.Fatal("nothing to do")
		}
		got[l]++
	}
	if got[High] < 9_900 || got[Normal] < 90 || got[Low] < 90 {
		t.Errorf("turns %v", got)
	}
	if _, ok := turn.Next([Lanes]bool{}); ok {
		t.Error("a turn for nobody")
	}
	if l, _ := turn.Next([Lanes]bool{Low: true}); l != Low {
		t.Errorf("lane %v, want the only one with work", l)
	}
}
