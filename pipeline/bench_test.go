package pipeline

import (
	"context"
	"fmt"
	"testing"
	"time"

	"millrace/pipeline/definition"
	"millrace/pipeline/history"
	"millrace/pipeline/queue"
)

// BenchmarkPassThrough is what the engine itself costs a run: the queue, the nodes, the history and the store are fakes
// that cost next to nothing.
func BenchmarkPassThrough(b *testing.B) {
	for _, ordered := range []bool{false, true} {
		b.Run(fmt.Sprintf("ordered=%v", ordered), func(b *testing.B) {
			t := &testing.T{}
			var plans []*definition.Plan
			for i := range uint32(20) {
				p := passThrough(i+1, fmt.Sprintf("out%d", i))
				if ordered {
					p.Settings.Order = definition.OrderRuns
				}
				plans = append(plans, p)
			}
			x := newBench(t, nil, plans...)
			ctx, stop := context.WithCancel(context.Background())
			done := make(chan error, 1)
			go func() { done <- x.eng.Run(ctx) }()
			b.ReportAllocs()
			b.ResetTimer()
			for i := 0; i < b.N; i += 64 {
				var entries []queue.Entry
				for j := range min(64, b.N-i) {
					seq := x.seq.Add(1)
					x.eng.byKind['v'].begin(seq, 1)
					entries = append(entries, queue.Entry{Kind: queue.Value, Seq: seq, Workspace: "main", Topic: "line1/press/temp", Time: int64(seq) * 1e6, Scale: 6,
						Value: []byte("21.53"), Refs: []queue.Ref{{Pipeline: uint32(j%20) + 1, Version: 1}}})
				}
				x.frames[queue.Normal] <- x.frame(queue.Normal, entries...)
			}
			for {
				x.mu.Lock()
				n := len(x.runs)
				x.mu.Unlock()
				if n >= b.N {
					break
				}
				time.Sleep(time.Millisecond)
			}
			b.StopTimer()
			stop()
			<-done
		})
	}
}

var _ = history.Completed
