package queue

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/nats-io/nats.go/jetstream"
)

// unusableError: the store in the folder is to be set aside.
type unusableError struct{ reason string }

func (e *unusableError) Error() string { return "the store cannot be used: " + e.reason }

const (
	markName   = "FORMAT"
	markPrefix = "millrace queue "
)

// mark says whether the folder holds a queue of ours. One of a newer program is an error.
func mark(dir string) (known bool, err error) {
	if err := os.MkdirAll(dir, 0o750); err != nil {
		return false, err
	}
	b, err := os.ReadFile(filepath.Join(dir, markName))
	switch {
	case errors.Is(err, os.ErrNotExist):
		return false, nil
	case err != nil:
		return false, err
	}
	text, ok := strings.CutPrefix(strings.TrimSpace(string(b)), markPrefix)
	version, err := strconv.Atoi(text)
	if !ok || err != nil {
		return true, &unusableError{reason: "its file " + markName + " is damaged"}
	}
	if version > frameVersion {
		return true, fmt.Errorf("format %d was written by a newer program, this one knows %d: start the newer one, or move the folder away; only waiting runs are in it", version, frameVersion)
	}
	return true, nil
}

func writeMark(dir string) error {
	return os.WriteFile(filepath.Join(dir, markName), fmt.Appendf(nil, "%s%d\n", markPrefix, frameVersion), 0o640)
}

// setAside moves a folder out of the way. One is kept; an older one goes.
func setAside(dir string) (string, error) {
	aside := filepath.Clean(dir) + ".damaged"
	if err := os.RemoveAll(aside); err != nil {
		return "", err
	}
	return aside, os.Rename(dir, aside)
}

// survive reads every frame that outlived the last process into the ledgers. After damage the values among them go, all of
// them: the follower finds them again in the log, in their order, which a frame that is missing would break. Entries of
// other kinds stay.
func (q *JetStream) survive(ctx context.Context) error {
	info, err := q.ctl.Info(ctx)
	if err != nil {
		return &unusableError{reason: err.Error()}
	}
	q.lastAtStart = info.State.LastSeq
	damaged := info.State.Lost != nil && len(info.State.Lost.Msgs) > 0
	var spoiled []uint64
	err = q.each(ctx, info.State.FirstSeq, info.State.LastSeq, func(seq uint64, subject string, data []byte) error {
		h, entries, err := decode(data)
		if errors.Is(err, errNewFormat) {
			return err
		}
		if err != nil || subject != subjects[h.lane] {
			spoiled = append(spoiled, seq)
			return nil
		}
		n := q.lanes[h.lane]
		p := parcel{seq: seq, bytes: int64(len(data)) + overhead(h.lane), runs: h.runs, created: h.created}
		n.ledger.confirm(p)
		n.pending += p.runs
		q.held.Add(p.bytes)
		for i := range entries {
			if e := &entries[i]; e.Kind == Value {
				q.survivors = append(q.survivors, Survivor{Seq: e.Seq, Refs: e.Refs})
			}
		}
		return nil
	})
	if err != nil {
		return err
	}
	if damaged || len(spoiled) > 0 {
		q.state.Damaged = len(spoiled)
		if info.State.Lost != nil {
			q.state.Damaged += len(info.State.Lost.Msgs)
		}
		q.o.Log.Warn("frames of the execution queue were damaged; values start their runs again from the historian's log", "frames", q.state.Damaged)
		return q.salvage(ctx, info.State.FirstSeq, info.State.LastSeq)
	}
	return nil
}

// salvage puts the entries that no log holds into new frames, then drops all there was.
func (q *JetStream) salvage(ctx context.Context, first, last uint64) error {
	for _, n := range q.lanes {
		n.ledger, n.pending = newLedger(), 0
	}
	q.held.Store(0)
	q.survivors = nil
	err := q.each(ctx, first, last, func(_ uint64, _ string, data []byte) error {
		h, entries, err := decode(data)
		if err != nil {
			return nil // counted by survive
		}
		b := newBuilder(h.lane, h.boot, h.created)
		for i := range entries {
			if entries[i].Kind != Value {
				b.add(&entries[i])
			}
		}
		if b.entries == 0 {
			return nil
		}
		runs, frame := b.runs, b.frame()
		m, err := q.conn.RequestWithContext(ctx, subjects[h.lane], frame)
		if err != nil {
			return err
		}
		seq, refused := readAnswer(m)
		if refused != "" {
			return &unusableError{reason: refused}
		}
		q.lastAtStart = seq
		n, p := q.lanes[h.lane], parcel{seq: seq, bytes: int64(len(frame)) + overhead(h.lane), runs: runs, created: h.created}
		n.ledger.confirm(p)
		n.pending += runs
		q.held.Add(p.bytes)
		return nil
	})
	if err != nil {
		return err
	}
	return q.ctl.Purge(ctx, jetstream.WithPurgeSequence(last+1))
}

// each reads the stream's messages from first to last, in order.
func (q *JetStream) each(ctx context.Context, first, last uint64, fn func(seq uint64, subject string, data []byte) error) error {
	sub, err := q.conn.SubscribeSync(q.conn.NewInbox())
	if err != nil {
		return err
	}
	defer func() { _ = sub.Unsubscribe() }() // fails only on a closed connection
	for next := max(first, 1); next <= last; {
		request, err := json.Marshal(map[string]any{"seq": next, "batch": 256, "max_bytes": 8 << 20, "no_hdr": false})
		if err != nil {
			return err
		}
		if err := q.conn.PublishRequest("$JS.API.DIRECT.GET."+stream, sub.Subject, request); err != nil {
			return err
		}
		before := next
		for {
			m, err := sub.NextMsgWithContext(ctx)
			if err != nil {
				return &unusableError{reason: "reading it: " + err.Error()}
			}
			if status := m.Header.Get("Status"); status != "" {
				if status != "204" && status != "404" {
					return &unusableError{reason: "reading it: " + status + " " + m.Header.Get("Description")}
				}
				break
			}
			seq, err := strconv.ParseUint(m.Header.Get(jetstream.SequenceHeader), 10, 64)
			if err != nil {
				return &unusableError{reason: "reading it: a message without a sequence"}
			}
			next = seq + 1
			if seq > last {
				return nil
			}
			if err := fn(seq, m.Header.Get(jetstream.SubjectHeader), m.Data); err != nil {
				return err
			}
		}
		if next == before {
			return nil // nothing is left
		}
	}
	return nil
}

// spoiled notes a frame that could be read at the start and not when it was taken.
func (q *JetStream) spoiled(n *lane, seq uint64, err error) {
	n.mu.Lock()
	runs := 0
	if i := n.ledger.find(seq); i >= 0 {
		p := n.ledger.remove(i)
		runs = p.runs
		n.pending -= runs
		q.held.Add(-p.bytes)
	}
	n.mu.Unlock()
	q.mu.Lock()
	q.state.Damaged++
	q.shed[byStore] += uint64(runs)
	q.mu.Unlock()
	q.o.Log.Error("a frame of the execution queue is damaged; its values start their runs again after the next start", "lane", n.l, "frame", seq, "error", err)
}

// serverLog is where the embedded server's warnings go.
type serverLog struct{ log *slog.Logger }

func (s *serverLog) Noticef(string, ...any) {}
func (s *serverLog) Debugf(string, ...any)  {}
func (s *serverLog) Tracef(string, ...any)  {}

func (s *serverLog) Warnf(format string, v ...any) {
	s.log.Warn("embedded queue server", "warning", fmt.Sprintf(format, v...))
}

func (s *serverLog) Errorf(format string, v ...any) {
	s.log.Error("embedded queue server", "error", fmt.Sprintf(format, v...))
}

// Fatalf is what the library calls before it gives up; Open and the writers notice.
func (s *serverLog) Fatalf(format string, v ...any) {
	s.log.Error("embedded queue server gives up", "error", fmt.Sprintf(format, v...))
}
