package web_test

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"testing"

	"millrace/auth"
	"millrace/uns"
)

// BenchmarkHistoryHour reads a raw hour of one topic, 3,600 values, over a real connection: quiet, and while 64
// other topics take values as fast as they can.
func BenchmarkHistoryHour(b *testing.B) {
	for _, busy := range []bool{false, true} {
		name := "quiet"
		if busy {
			name = "ingesting"
		}
		for _, format := range []string{"json", "ndjson", "csv"} {
			b.Run(name+"/"+format, func(b *testing.B) {
				box := newBox(b)
				batch := &uns.Batch{}
				for i := range int64(3600) {
					batch.Messages = append(batch.Messages, uns.Message{Source: box.ingress.Source("d"), Workspace: "main", Path: "line1/press/temp",
						Payload: []byte(at(noon-3_600_000+i*1000, fmt.Sprintf("%d.%02d", 20+i%7, i%100)))})
				}
				must(b, box.ingress.Write(context.Background(), batch))
				ended := make(chan struct{})
				ctx, stop := context.WithCancel(context.Background())
				go func() {
					defer close(ended)
					if !busy {
						return
					}
					in := &uns.Batch{}
					for n := 0; ctx.Err() == nil; n++ {
						in.Reset()
						for i := range 64 {
							in.Messages = append(in.Messages, uns.Message{Source: box.ingress.Source("d"), Workspace: "main",
								Path: fmt.Sprintf("noise/%d", i), Payload: fmt.Appendf(nil, `{"value":%d}`, n)})
						}
						if box.ingress.Write(context.Background(), in) != nil {
							return
						}
					}
				}()
				req, err := http.NewRequest("GET", box.root+"/api/v1/uns/history?topic=line1/press/temp&format="+format, nil)
				must(b, err)
				req.Header.Set("Authorization", "Bearer "+box.tokens[auth.RoleViewer])
				b.ReportAllocs()
				for b.Loop() {
					res, err := http.DefaultClient.Do(req)
					must(b, err)
					n, err := io.Copy(io.Discard, res.Body)
					must(b, err)
					res.Body.Close()
					if res.StatusCode != 200 || n < 3600*20 {
						b.Fatalf("status %d, %d bytes", res.StatusCode, n)
					}
				}
				b.StopTimer()
				stop()
				<-ended
			})
		}
	}
}

// BenchmarkAddThousandClients is one bulk request for 1,000 clients.
func BenchmarkAddThousandClients(b *testing.B) {
	box := newBox(b)
	b.ReportAllocs()
	for round := 0; b.Loop(); round++ {
		var body []byte
		for i := range 1000 {
			body = fmt.Appendf(body, `{"id":"r%dd%d","grants":[{"effect":"allow","actions":["publish"],"filter":"d/%d/#"}]}`+"\n", round, i, i)
		}
		a := box.call(auth.RoleAdmin, "POST", "/clients/bulk")
		a.body = string(body)
		a.do().wants(b, 200)
	}
}
