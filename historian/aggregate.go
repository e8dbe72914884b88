package historian

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
	"runtime"
	"slices"
	"sync"
)

// Fill says what becomes of buckets without samples.
type Fill uint8

// The fills of contract section 7.
const (
	// FillNone leaves them out.
	FillNone Fill = iota
	// FillNull hands them out with a count of 0.
	FillNull
	// FillPrev hands them out with a count of 0 and what the bucket before them had; before the first, the last value
	// before the range stands in.
	FillPrev
)

// Aggregation asks for aggregates of the samples of many series with From <= Time < To.
type Aggregation struct {
	// Series are looked through together, hour by hour, in order of id. One that is named twice is answered twice.
	Series   []Series
	From, To int64
	Step     Step
	Fill     Fill
	// Weighted asks for TWA.
	Weighted bool
	// Until is how far the last value is carried on by TWA, the present as a rule; 0 is To.
	Until int64
	// Origin is where the whole range began of which this is a later page, for FillPrev; 0 is From.
	Origin int64
}

// Bucket is the aggregates of one series in one bucket. Its values share memory with the query: they are valid during
// the call that hands it out.
type Bucket struct {
	// From and To are the bounds of the bucket as it is cut, which may lie outside the range. With one bucket they are
	// those of the range.
	From, To int64
	// Count counts all samples, Good those of good quality, Numeric those that are numbers or booleans and not bad.
	Count, Good, Numeric uint64
	// Valued says that First and Last are there: a sample that is not bad.
	Valued      bool
	First, Last Value
	// Numbered says that Sum, Min, Max and Avg are there. Sum is exact where all numbers are decimals; Min and Max are
	// the numbers as they were sent, of equal ones that with the fewest digits.
	Numbered      bool
	Sum, Min, Max Value
	// Avg is the mean of the numbers, not weighted: the float64 nearest to the exact quotient.
	Avg float64
	// Timed says that TWA is there: the mean weighted by how long each number stood, from the last number before the
	// bucket, where there is one, to the end of the bucket, of the range, or Until.
	Timed bool
	TWA   float64
}

// lookBack is how many samples are looked at for the last number before a range.
const lookBack = 100_000

// batchWeight bounds the series that are looked through together: a series weighs one, and one more per 64 octets of
// its last value.
const batchWeight = 512

// Aggregate calls each for every bucket, those of one series in order of time, until each returns false, which ends
// that series only. i is the place of the series in q.Series. Calls for different series may come at once and from
// other goroutines, all before Aggregate returns.
//
// It sees every sample whose Append returned before, none twice. A query that takes longer than two seconds goes on
// from a later state of the store, always at a full hour. It runs on at most half the cores, together with all
// others. ctx is looked at once per hour of data.
func (s *Store) Aggregate(ctx context.Context, q Aggregation, each func(i int, b *Bucket) bool) error {
	if err := q.Step.Validate(); err != nil {
		return fmt.Errorf("historian: aggregate: step: %w", err)
	}
	if q.From >= q.To || len(q.Series) == 0 {
		return nil
	}
	if q.Until == 0 {
		q.Until = q.To
	}
	if q.Origin == 0 || q.Step.whole() {
		q.Origin = q.From
	}
	batches := s.batches(&q, each)
	workers := min(cap(s.readers), len(batches))
	if workers == 1 {
		for _, b := range batches {
			if err := b.run(ctx); err != nil {
				return fmt.Errorf("historian: aggregate: %w", err)
			}
		}
		return nil
	}
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	queue := make(chan *batch, len(batches))
	for _, b := range batches {
		queue <- b
	}
	close(queue)
	faults := make([]error, workers)
	var running sync.WaitGroup
	for w := range workers {
		running.Go(func() {
			for b := range queue {
				if faults[w] = b.run(ctx); faults[w] != nil {
					stop()
					return
				}
			}
		})
	}
	running.Wait()
	// What another worker's fault cancelled says nothing.
	slices.SortStableFunc(faults, func(a, b error) int {
		rank := func(err error) int {
			switch {
			case err == nil:
				return 2
			case errors.Is(err, context.Canceled):
				return 1
			}
			return 0
		}
		return cmp.Compare(rank(a), rank(b))
	})
	if faults[0] != nil {
		return fmt.Errorf("historian: aggregate: %w", faults[0])
	}
	return nil
}

// newReaders makes the slots of everything that reads many hours: half the cores, at least one.
func newReaders() chan struct{} { return make(chan struct{}, max(1, runtime.GOMAXPROCS(0)/2)) }

// batches spreads the series, in order of id, so that neighbours in the tables are read together.
func (s *Store) batches(q *Aggregation, each func(int, *Bucket) bool) (out []*batch) {
	order := make([]int, len(q.Series))
	for i := range order {
		order[i] = i
	}
	slices.SortStableFunc(order, func(a, b int) int { return cmp.Compare(q.Series[a], q.Series[b]) })
	// Each worker is to have something to do.
	most := max(1, min(batchWeight, (len(order)+cap(s.readers)-1)/cap(s.readers)))
	weight := batchWeight
	for _, i := range order {
		w := 1 + s.lastSize(q.Series[i])/64
		if weight+w > most {
			out = append(out, &batch{s: s, q: q, each: each, cut: newBuckets(q.Step), lo: q.From})
			weight = 0
		}
		weight += w
		b := out[len(out)-1]
		b.folds = append(b.folds, fold{i: i, id: q.Series[i]})
	}
	return out
}

// lastSize is the length of the text of the last value.
func (s *Store) lastSize(id Series) int {
	sh := s.heads.shard(id)
	sh.mu.RLock()
	defer sh.mu.RUnlock()
	if hd := sh.at(id); hd != nil && hd.hasLast {
		return len(hd.last.Value.Raw)
	}
	return 0
}

// before finds the last sample before a time that is not bad, and the last of those that is a number; ok says whether
// there is one. It gives up after lookBack samples.
func (s *Store) before(ctx context.Context, id Series, before int64) (last, number mark, lastOK, numberOK bool, err error) {
	q := Query{Series: id, From: math.MinInt64, To: before, Limit: 8, Desc: true}
	var page []Sample
	for seen := 0; seen < lookBack; seen += len(page) {
		page, q.After, err = s.Raw(ctx, page[:0], q)
		if err != nil {
			return last, number, false, false, err
		}
		for i := range page {
			p := &page[i]
			if p.Quality == Bad {
				continue
			}
			if !lastOK {
				last, lastOK = mark{p.Time, p.Value}, true
			}
			if n, ok := p.Value.number(); ok {
				return last, mark{p.Time, n}, lastOK, true, nil
			}
		}
		if q.After == nil {
			break
		}
		q.Limit = min(8*q.Limit, 4096)
	}
	return last, number, lastOK, false, nil
}
