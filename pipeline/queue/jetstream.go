package queue

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

// stream is where the frames lie; subjects are its lanes.
const stream = "EXEC"

var subjects = [Lanes]string{"exec.high", "exec.normal", "exec.low"}

// maxEntry bounds one entry; see Put.
const maxEntry = 16 << 20

// ErrTooLarge: the entry does not fit into a frame; it was not put.
var ErrTooLarge = errors.New("queue: an entry larger than 16 MiB does not fit into a frame; let it carry less")

// JetStream is the queue on a stream of an embedded server without a listener. Frames outlive the process once the stream
// has confirmed them, and a power cut once a second of sync has passed. It must be the only one to use its folder: the
// owner of the data folder is.
type JetStream struct {
	o     Options
	boot  uint64
	srv   *server.Server
	conn  *nats.Conn
	ctl   jetstream.Stream
	inbox string
	lanes [Lanes]*lane
	m     *metrics

	lastAtStart uint64
	survivors   []Survivor

	held    atomic.Int64 // octets that were put and not taken
	waiters atomic.Int32
	roomMu  sync.Mutex
	room    chan struct{} // closed and replaced when there may be room
	evict   chan struct{} // one token for the keeper

	mu        sync.Mutex // guards what follows
	state     State
	pauseTill time.Time
	shed      [causes]uint64
	lostOut   uint64

	started   sync.Once
	closing   context.Context
	stop      context.CancelFunc
	running   sync.WaitGroup
	closeOnce sync.Once
	closeErr  error
}

// State is what an operator should know of the queue beside its figures.
type State struct {
	// SetAside is the folder a damaged store was moved to at the start, and why; empty when there was none.
	SetAside, Reason string
	// Damaged are frames that could not be read and were dropped; the follower finds the values of theirs again.
	Damaged int
	// Fault is why the stream takes nothing at the moment; empty when it does.
	Fault string
}

// Open opens or makes the queue in dir. A store that cannot be used is set aside, not refused, because triggers are found
// again in the historian's log; State tells. Nothing is shed before the first Put or Take. It fails when the folder cannot be written or a newer program wrote it.
func Open(dir string, o Options) (*JetStream, error) {
	o = o.filled()
	q, err := open(dir, o)
	var unusable *unusableError
	if errors.As(err, &unusable) {
		aside, moveErr := setAside(dir)
		if moveErr != nil {
			return nil, errors.Join(err, moveErr)
		}
		o.Log.Warn("the execution queue's store was damaged and is set aside; values start their runs again from the historian's log, runs started by hand, schedule or webhook that waited are gone",
			"folder", aside, "reason", unusable.reason)
		if q, err = open(dir, o); err == nil {
			q.state.SetAside, q.state.Reason = aside, unusable.reason
		}
	}
	if err != nil {
		return nil, fmt.Errorf("queue: open %s: %w", dir, err)
	}
	if q.m, err = newMetrics(o.Registry, q); err != nil {
		return nil, errors.Join(err, q.Close())
	}
	return q, nil
}

func open(dir string, o Options) (*JetStream, error) {
	known, err := mark(dir)
	if err != nil {
		return nil, err
	}
	q := &JetStream{o: o, boot: uint64(o.Now().UnixNano()), room: make(chan struct{}), evict: make(chan struct{}, 1)}
	q.closing, q.stop = context.WithCancel(context.Background())
	if err := q.start(dir, known); err != nil {
		q.stop()
		q.shut()
		return nil, err
	}
	return q, nil
}

func (q *JetStream) start(dir string, known bool) (err error) {
	if err := dropConsumers(dir); err != nil {
		return err
	}
	if q.srv, err = startServer(dir, q.o); err != nil {
		return err
	}
	if q.conn, err = nats.Connect("", nats.InProcessServer(q.srv), nats.Name("queue"), nats.MaxReconnects(-1), nats.Timeout(10*time.Second)); err != nil {
		return fmt.Errorf("connecting to the embedded server: %w", err)
	}
	js, err := jetstream.New(q.conn)
	if err != nil {
		return err
	}
	ctx, done := context.WithTimeout(q.closing, 30*time.Second)
	defer done()
	_, err = js.Stream(ctx, stream)
	switch {
	case errors.Is(err, jetstream.ErrStreamNotFound) && known:
		return &unusableError{reason: "its stream could not be recovered"}
	case err != nil && !errors.Is(err, jetstream.ErrStreamNotFound):
		return &unusableError{reason: err.Error()}
	}
	if q.ctl, err = js.CreateOrUpdateStream(ctx, q.config()); err != nil {
		return &unusableError{reason: err.Error()}
	}
	if err := writeMark(dir); err != nil {
		return err
	}
	q.inbox = q.conn.NewInbox() + "."
	for l := range Lanes {
		q.lanes[l] = newLane(q, l)
	}
	if _, err := q.conn.Subscribe(q.inbox+"*.*", q.confirmation); err != nil {
		return err
	}
	if err := q.survive(ctx); err != nil {
		return err
	}
	for _, n := range q.lanes {
		if err := n.consume(ctx, q.ctl, q.o.Scheduler.AckWait); err != nil {
			return err
		}
	}
	for _, n := range q.lanes {
		q.running.Go(func() { n.write(q.closing) })
	}
	return nil
}

// begin starts what drops: only now is there somebody who can be told of it.
func (q *JetStream) begin() {
	q.started.Do(func() { q.running.Go(q.keep) })
}

// config is the stream's. What is shed is chosen by the keeper, which can tell whose runs they are and spares frames that
// are out; the stream's own bound only stands behind it.
func (q *JetStream) config() jetstream.StreamConfig {
	return jetstream.StreamConfig{
		Name: stream, Subjects: subjects[:], Retention: jetstream.WorkQueuePolicy, Storage: jetstream.FileStorage,
		MaxBytes: 2*q.o.MaxBytes + 256<<20, Discard: jetstream.DiscardNew, AllowDirect: true, Duplicates: time.Second,
	}
}

func startServer(dir string, o Options) (*server.Server, error) {
	srv, err := server.NewServer(&server.Options{
		ServerName: "millrace-queue", DontListen: true, NoSigs: true, NoSystemAccount: true,
		JetStream: true, StoreDir: dir, SyncInterval: time.Second,
		JetStreamMaxMemory: 1 << 20, JetStreamMaxStore: 4*o.MaxBytes + 1<<30,
		MaxPayload: maxFrame, MaxPending: 2 * maxFrame, DisableJetStreamBanner: true,
	})
	if err != nil {
		return nil, err
	}
	srv.SetLogger(&serverLog{log: o.Log}, false, false)
	srv.Start()
	if !srv.ReadyForConnections(10*time.Second) || !srv.JetStreamEnabled() {
		srv.Shutdown()
		srv.WaitForShutdown()
		return nil, &unusableError{reason: "the embedded server does not start with it"}
	}
	return srv, nil
}

// dropConsumers takes the consumers of the last process out of the store before the server sees them. One that outlived a
// kill hands out newer frames first and what was out only after ackWait, and one with a damaged file can neither be read
// nor replaced.
func dropConsumers(dir string) error {
	list, err := filepath.Glob(filepath.Join(dir, "jetstream", "*", "streams", "*", "obs"))
	if err != nil {
		return err
	}
	for _, d := range list {
		if err := os.RemoveAll(d); err != nil {
			return err
		}
	}
	return nil
}

func (n *lane) consume(ctx context.Context, s jetstream.Stream, wait time.Duration) error {
	if err := s.DeleteConsumer(ctx, n.l.String()); err != nil && !errors.Is(err, jetstream.ErrConsumerNotFound) {
		return &unusableError{reason: err.Error()} // a layout of files that dropConsumers does not know
	}
	c, err := s.CreateConsumer(ctx, jetstream.ConsumerConfig{
		Durable: n.l.String(), AckPolicy: jetstream.AckExplicitPolicy, AckWait: wait, FilterSubject: n.subject, MaxAckPending: maxOutRuns + 64,
	})
	if err != nil {
		return &unusableError{reason: err.Error()}
	}
	m, err := c.Messages(jetstream.PullMaxMessages(8))
	if err != nil {
		return err
	}
	n.mu.Lock()
	n.msgs = m
	n.mu.Unlock()
	if n.q.closing.Err() != nil {
		m.Stop() // Close may have stopped the one before
	}
	return nil
}

// confirmation is the stream's answer to a frame.
func (q *JetStream) confirmation(m *nats.Msg) {
	rest, _ := strings.CutPrefix(m.Subject, q.inbox)
	if len(rest) < 3 || rest[0] < '0' || rest[0] >= '0'+byte(Lanes) {
		return
	}
	number, err := strconv.ParseUint(rest[2:], 10, 64)
	if err != nil {
		return
	}
	seq, refused := readAnswer(m)
	q.lanes[rest[0]-'0'].answer(number, seq, refused)
}

// readAnswer reads {"stream":"EXEC","seq":7}, or why not.
func readAnswer(m *nats.Msg) (seq uint64, refused string) {
	if _, after, ok := bytes.Cut(m.Data, []byte(`"seq":`)); ok && !bytes.Contains(m.Data, []byte(`"error"`)) {
		for _, c := range after {
			switch {
			case c == ' ' && seq == 0:
			case c >= '0' && c <= '9':
				seq = seq*10 + uint64(c-'0')
			default:
				return seq, ""
			}
		}
	}
	var a struct {
		Error *struct {
			Description string `json:"description"`
		} `json:"error"`
	}
	switch {
	case json.Unmarshal(m.Data, &a) == nil && a.Error != nil:
		return 0, a.Error.Description
	case m.Header.Get("Status") != "":
		return 0, "the stream does not answer (" + m.Header.Get("Status") + ")"
	}
	return 0, "the stream's answer cannot be read"
}

// Put implements Queue. An entry is at most 16 MiB. It is in the stream a few milliseconds later; see Flush.
func (q *JetStream) Put(ctx context.Context, l Lane, e Entry) error {
	if e.size() > maxEntry {
		return ErrTooLarge
	}
	q.begin()
	for {
		if q.closing.Err() != nil {
			return ErrClosed
		}
		if !q.overfull() && q.lanes[l].put(&e) {
			return nil
		}
		if err := q.wait(ctx, func() bool { return !q.overfull() && q.lanes[l].room() }); err != nil {
			return err
		}
	}
}

// overfull says that Put must wait: for takers, or for the keeper to drop what is oldest.
func (q *JetStream) overfull() bool {
	held := q.held.Load()
	if q.o.DiscardNewOnFull {
		return held >= q.o.MaxBytes
	}
	return held >= q.o.MaxBytes+q.o.MaxBytes/8+1<<20
}

func (n *lane) room() bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	return len(n.ready) < maxReady
}

// wait returns when ok may have become true.
func (q *JetStream) wait(ctx context.Context, ok func() bool) error {
	q.waiters.Add(1)
	defer q.waiters.Add(-1)
	q.roomMu.Lock()
	again := q.room
	q.roomMu.Unlock()
	if ok() {
		return nil
	}
	select {
	case <-again:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	case <-q.closing.Done():
		return ErrClosed
	}
}

// freed wakes those who wait for room.
func (q *JetStream) freed() {
	if q.waiters.Load() == 0 {
		return
	}
	q.roomMu.Lock()
	close(q.room)
	q.room = make(chan struct{})
	q.roomMu.Unlock()
}

// Flush returns when everything that was put before is in the stream, so that a kill does not lose it.
func (q *JetStream) Flush(ctx context.Context) error {
	for _, n := range q.lanes {
		for !n.idle() {
			if err := q.wait(ctx, n.idle); err != nil {
				return err
			}
		}
	}
	return nil
}

// Take implements Queue.
func (q *JetStream) Take(ctx context.Context, l Lane) (*Frame, error) {
	if q.closing.Err() != nil {
		return nil, ErrClosed
	}
	q.begin()
	return q.lanes[l].take(ctx)
}

// Survivors are the values in frames that outlived the last process, as they were at Open.
func (q *JetStream) Survivors() []Survivor { return q.survivors }

// State is how the queue is now.
func (q *JetStream) State() State {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.state
}

// Close stores what was put, and ends every call. Frames that are out and not acknowledged come again after Open.
func (q *JetStream) Close() error {
	q.closeOnce.Do(func() {
		ctx, done := context.WithTimeout(context.Background(), 5*time.Second)
		defer done()
		if err := q.Flush(ctx); err != nil && !errors.Is(err, ErrClosed) {
			q.closeErr = fmt.Errorf("queue: what was put last could not be stored; values start their runs again from the historian's log: %w", err)
		}
		q.started.Do(func() {}) // the keeper does not start any more
		q.stop()
		for _, n := range q.lanes {
			n.messages().Stop()
		}
		q.running.Wait()
		if err := q.conn.FlushTimeout(time.Second); err != nil && q.closeErr == nil {
			q.closeErr = fmt.Errorf("queue: the last acknowledgements were not stored; their runs are looked at again: %w", err)
		}
		q.shut()
		q.m.close()
	})
	return q.closeErr
}

func (q *JetStream) shut() {
	if q.conn != nil {
		q.conn.Close()
	}
	if q.srv != nil {
		q.srv.Shutdown()
		q.srv.WaitForShutdown()
	}
}
