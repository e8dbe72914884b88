package perf

import (
	"context"
	"io"
	"time"
)

// What the external tests see of the inside.

type (
	Outcome      = outcome
	Transmission = transmission
	Stats        = stats
	Mode         = mode
	Signal       = signal
	Track        = track
	ReadBack     = readBack
	Usage        = usage
	Reading      = reading
	Box          = box
	Delivery     = delivery
)

const (
	FateOpen    = fateOpen
	FateAcked   = fateAcked
	FateRefused = fateRefused
	ModeIdle    = modeIdle
	ModeFirst   = modeFirst
	ModePaced   = modePaced
	ModeClosed  = modeClosed
)

var (
	Match         = match
	NewSignal     = newSignal
	NextPacket    = nextPacket
	ParsePublish  = parsePublish
	ParseConnack  = parseConnack
	AppendPublish = appendPublish
	AppendConnect = appendConnect
	Used          = used
	CompareAll    = compareAll
	DialSocket    = dialSocket
	Launch        = launch
	StartBare     = startBare
)

func (f *Fleet) Set(m Mode, rate float64) error { return f.set(m, rate) }
func (f *Fleet) Take() (*Stats, error)          { return f.take() }
func (f *Fleet) Tracks() []*Track               { return f.tracks() }
func (f *Fleet) Subscribe(client, secret, filter string) error {
	return f.subscribe(client, secret, filter)
}
func (f *Fleet) Connected(ctx context.Context, n int, limit time.Duration) error {
	return f.connected(ctx, n, limit)
}
func (f *Fleet) Drain(ctx context.Context, limit time.Duration) (int64, error) {
	return f.drain(ctx, limit)
}
func (f *Fleet) Contacts() int64 { return f.contacts.Load() }

func (s *signal) Text() string { return string(s.kind.appendDigits(nil, s.next())) }

func (s *stats) AckLatencies() (count int64, p50 float64) {
	return s.ack.TotalCount(), milliseconds(s.ack, 50)
}
func (s *stats) VerdictLatencies() int64 { return s.answer.TotalCount() }

func (t *track) Path() string                  { return t.path }
func (t *track) Fresh() int                    { return int(t.fresh) }
func (t *track) Transmissions() []Transmission { return t.transmissions(nil) }
func (t *track) Add(n uint32) uint32           { return t.add(n) }
func (t *track) Ack(at uint32, code byte)      { t.ack(at, code) }

// NewTransmission makes what match takes.
func NewTransmission(value uint32, state fate) Transmission {
	return transmission{value: value, state: state}
}

func (t transmission) Value() uint32 { return t.value }
func (t transmission) Fate() fate    { return t.state }

func (o outcome) Missing() []uint32 { return o.missing }

func (d delivery) Fields() (topic string, id uint16, correlation []byte, payload string) {
	return string(d.topic), d.id, d.correlation, string(d.payload)
}

func NewReading(at time.Time, cpu time.Duration, resident, written, sectors int64) Reading {
	return reading{at: at, cpu: cpu, resident: resident, written: written, sectors: sectors}
}

func (b *box) MQTT() string { return b.mqtt }
func (b *box) Abandon()     { b.abandon() }
func (b *box) Pid() int     { return b.process.pid }
func (b *box) Read(ctx context.Context) (cpu time.Duration, resident int64, err error) {
	r, err := b.meter.read(ctx)
	return r.cpu, r.resident, err
}

var _ io.Writer = io.Discard
