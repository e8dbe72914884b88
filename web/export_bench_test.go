package web_test

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"testing"
	"time"

	"millrace/auth"
	"millrace/historian"
)

// BenchmarkExport downloads half a million values over loopback; server and client share the cores.
func BenchmarkExport(b *testing.B) {
	x := newBox(b)
	const topics, each = 10, 50_000
	for topic := range topics {
		path := fmt.Sprintf("line%d/temp", topic)
		x.put("main", path, "1")
		t := x.catalog.Lookup("main", path)
		for first := int64(0); first < each; first += 1000 {
			var group []historian.Sample
			for i := first; i < first+1000; i++ {
				group = append(group, historian.Sample{Series: t.Series, Stamped: true, Scale: 6, Time: (noon - 60_000_000 + i*1000 + i%3) * 1e6, Value: historian.Value{Kind: historian.Decimal, Exp: 1, Mant: 200 + i*7919%300}})
			}
			if err := x.store.Append(context.Background(), group, nil); err != nil {
				b.Fatal(err)
			}
		}
	}
	if s, ok := x.store.(*historian.Store); ok {
		if err := s.Checkpoint(context.Background()); err != nil {
			b.Fatal(err)
		}
	}
	for _, format := range []string{"csv", "ndjson", "parquet"} {
		b.Run(format, func(b *testing.B) {
			for b.Loop() {
				r, err := http.NewRequest("GET", x.root+"/api/v1/uns/export?filter=%23&from=-1d&format="+format, nil)
				if err != nil {
					b.Fatal(err)
				}
				r.Header.Set("Authorization", "Bearer "+x.tokens[auth.RoleViewer])
				answer, err := http.DefaultClient.Do(r)
				if err != nil || answer.StatusCode != 200 {
					b.Fatal(answer, err)
				}
				n, err := io.Copy(io.Discard, answer.Body)
				answer.Body.Close()
				if err != nil || n < 10_000 {
					b.Fatal(n, err)
				}
			}
			b.ReportMetric(float64(b.N)*topics*each/b.Elapsed().Seconds()/1e6, "M-values/s")
		})
	}
}

// BenchmarkAggregates asks for one-minute aggregates of 1,000 topics over an hour by REST.
func BenchmarkAggregates(b *testing.B) {
	x := newBox(b)
	var series []historian.Series
	for topic := range 1000 {
		path := fmt.Sprintf("line%d/temp", topic)
		x.put("main", path, "1")
		if topic%200 == 0 {
			x.clock.add(time.Second)
		}
		series = append(series, x.catalog.Lookup("main", path).Series)
	}
	for sec := int64(0); sec < 3600; sec++ {
		group := make([]historian.Sample, 0, len(series))
		for i, id := range series {
			group = append(group, historian.Sample{Series: id, Stamped: true, Scale: 6, Time: (noon - 3_600_000 + sec*1000 + int64(i)%7) * 1e6, Value: historian.Value{Kind: historian.Decimal, Exp: 1, Mant: 200 + (sec+int64(i))*7919%300}})
		}
		if err := x.store.Append(context.Background(), group, nil); err != nil {
			b.Fatal(err)
		}
		if s, ok := x.store.(*historian.Store); ok && sec%600 == 599 && sec < 3599 {
			if err := s.Checkpoint(context.Background()); err != nil {
				b.Fatal(err)
			}
		}
	}
	for b.Loop() {
		r := x.get("/uns/history", "filter", "#", "agg", "avg,min,max", "every", "1m", "from", fmt.Sprint(noon-3_600_000), "to", fmt.Sprint(noon), "limit", "100000")
		if r.StatusCode != 200 || len(r.text) < 1_000_000 {
			b.Fatal(r.StatusCode, len(r.text))
		}
	}
}
