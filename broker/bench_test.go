package broker_test

import (
	"bytes"
	"context"
	"fmt"
	"math"
	"strings"
	"testing"

	"millrace/broker"
	"millrace/historian"
	"millrace/uns"
)

// accepting says yes to everything, as a store that costs nothing.
type accepting struct {
	source uns.Source
	topic  uns.Topic
	live   uns.Live
}

func (a *accepting) Source(string) *uns.Source { return &a.source }

func (a *accepting) Accept(_ context.Context, b *uns.Batch) error {
	b.Samples = b.Samples[:0]
	for i := range b.Messages {
		m := &b.Messages[i]
		if m.Verdict.OK() {
			m.Topic, m.At = &a.topic, len(b.Samples)
			b.Samples = append(b.Samples, historian.Sample{Seq: 1, Scale: 6, Value: historian.Value{Kind: historian.Decimal, Mant: 1}})
		}
	}
	a.live.Prepare(b)
	return nil
}

func (a *accepting) Announce(b *uns.Batch) {
	for i := range b.Messages {
		if m := &b.Messages[i]; m.Verdict.OK() {
			a.live.Publish(b, i)
		}
	}
}

func pipeline(t testing.TB) *broker.Broker {
	x := open(t, setting{})
	in := &accepting{topic: uns.Topic{Workspace: "main", Path: "line1/temp", Full: full("line1/temp")}}
	o := broker.DefaultOptions()
	o.Address, o.Namespace = "127.0.0.1:0", uns.NewNamespace(uns.DefaultOptions())
	b, err := broker.Open(o, in, x.book, x.store)
	if err != nil {
		t.Fatal(err)
	}
	in.live = b
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- b.Serve(ctx) }()
	t.Cleanup(func() { cancel(); <-done })
	dial(t, b.Addr(), hello{id: "first", user: "dev"}).alive() // it serves
	return b
}

// run sends batches of per publishes, n of them, through one connection.
func run(b *broker.Broker, version byte, n, per int, properties []byte) {
	one := pub{topic: full("line1/temp"), payload: `{"value":21.5}`, qos: 1, id: 7, properties: properties}.bytes(version)
	b.Take(&wire{in: hello{id: "c", user: "dev", version: version}.bytes(), repeat: bytes.Repeat(one, per), times: n, piece: 1 << 20})
}

// A publish in steady state allocates nothing in this package: whatever many publishes allocate, fewer do as well.
func TestPublishAllocatesNothing(t *testing.T) {
	b := pipeline(t)
	for _, v := range versions {
		per := math.Inf(1)
		for range 5 { // the least of a few: what else runs in the process allocates, too
			few := testing.AllocsPerRun(5, func() { run(b, v, 100, 10, nil) })
			many := testing.AllocsPerRun(5, func() { run(b, v, 2100, 10, nil) })
			if per = min(per, (many-few)/20000); per <= 0.001 {
				break
			}
		}
		if per > 0.001 {
			t.Errorf("v%d: %.4f allocations per publish", v, per)
		}
	}
}

func BenchmarkPublish(b *testing.B) {
	for _, per := range []int{1, 10, 100} {
		for name, properties := range map[string][]byte{"plain": nil, "alias": {0x23, 0, 1}} {
			b.Run(fmt.Sprintf("%s/read=%d", name, per), func(b *testing.B) {
				x := pipeline(b)
				b.ReportAllocs()
				b.ResetTimer()
				run(x, 5, b.N/per+1, per, properties)
			})
		}
	}
}

// One publish to so many subscribers that take nothing: matching, queueing, dropping the oldest.
func BenchmarkLive(b *testing.B) {
	for _, n := range []int{0, 1, 100} {
		b.Run(fmt.Sprint("subscribers=", n), func(b *testing.B) {
			x := open(b, setting{})
			for i := range n {
				c := dial(b, x.Addr(), hello{id: fmt.Sprint(i), user: "sub", properties: []byte{0x21, 0, 1}})
				c.mustSub(1, "#")
			}
			topic := &uns.Topic{Workspace: "main", Path: "line1/temp", Full: full("line1/temp")}
			batch := &uns.Batch{Messages: []uns.Message{{Topic: topic}}, Samples: []uns.Sample{{Scale: 6, Value: historian.Value{Kind: historian.Decimal, Mant: 215, Exp: 1}}}}
			b.ReportAllocs()
			for b.Loop() {
				x.Prepare(batch)
				x.Publish(batch, 0)
			}
		})
	}
}

// A SUBSCRIBE of so many filters of so many levels, and the UNSUBSCRIBE of them, up to what a session may have.
func BenchmarkSubscribe(b *testing.B) {
	for _, size := range []struct{ filters, levels int }{{256, 4}, {256, 32}, {256, 128}, {4096, 8}} {
		b.Run(fmt.Sprintf("filters=%d/levels=%d", size.filters, size.levels), func(b *testing.B) {
			x := open(b, setting{})
			c := dial(b, x.Addr(), hello{id: "c", user: "sub"})
			filters := make([]string, size.filters)
			parts := [][]byte{{0, 9}, props(5, nil)}
			for i := range filters {
				filters[i] = fmt.Sprint("plain/", i) + strings.Repeat("/level", size.levels-2)
				parts = append(parts, str(filters[i]))
			}
			all, none := subscribe(5, 8, nil, 1, filters...), frame(0xA2, parts...)
			b.ResetTimer()
			for range b.N {
				c.write(all)
				if p := c.want(0x90); p.body[len(p.body)-1] != 1 {
					b.Fatal(p)
				}
				c.write(none)
				if p := c.want(0xB0); p.body[len(p.body)-1] != 0 {
					b.Fatal(p)
				}
			}
		})
	}
}

// The first publish to a topic after a subscription somewhere: finding a thousand who listen by one filter.
func BenchmarkMatchMany(b *testing.B) {
	x := open(b, setting{})
	for i := range 1000 {
		c := dial(b, x.Addr(), hello{id: fmt.Sprint(i), user: "sub"})
		c.mustSub(0, "#")
	}
	b.ReportAllocs()
	for b.Loop() {
		x.MatchAnew(full("line1/temp"))
	}
}

// What it costs to encode a delivery, to clients that take so many topic aliases: none, enough, too few.
func BenchmarkDeliver(b *testing.B) {
	topics := make([]string, 50)
	for i := range topics {
		topics[i] = full(fmt.Sprintf("line%d/machine%d/spindle/temperature", i%5, i))
	}
	for _, most := range []byte{0, 64, 10} {
		b.Run(fmt.Sprint("aliases=", most), func(b *testing.B) {
			x := open(b, setting{})
			dial(b, x.Addr(), hello{id: "s", user: "sub", properties: []byte{0x22, 0, most}}).mustSub(0, "none")
			f := x.NewFiller("s", `{"value":21.5,"timestamp":"2026-12-01T12:00:00.000Z","quality":"good"}`, topics...)
			f.Fill()
			f.Fill()
			octets, n := 0, 0
			b.ReportAllocs()
			for b.Loop() {
				octets += f.Fill()
				n += len(topics)
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(n), "ns/message")
			b.ReportMetric(float64(octets)/float64(n), "octets/message")
		})
	}
}
