package trigger_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"millrace/historian"
	"millrace/pipeline/node"
	"millrace/pipeline/queue"
	"millrace/pipeline/trigger"
	"millrace/uns"
)

// topics are topics by series, as the catalog has them.
type topics map[historian.Series]*uns.Topic

func (t topics) BySeries(id historian.Series) *uns.Topic { return t[id] }

func (t topics) add(id historian.Series, workspace, path string) {
	t[id] = &uns.Topic{Workspace: workspace, Path: path, Series: id}
}

func wants(pipeline uint32, workspace string, filters ...string) *trigger.Trigger {
	return &trigger.Trigger{Ref: queue.Ref{Pipeline: pipeline, Version: 1}, Lane: queue.Lane(pipeline % 3), Workspace: workspace, Filters: filters, Values: &node.Values{}}
}

func some(s string) bool { return s != "" } // an empty topic or filter is none

// TestTableMatchesLikeTheFilters holds the table against the filters one by one, while triggers come and go.
func TestTableMatchesLikeTheFilters(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		level := rapid.SampledFrom([]string{"a", "b", "c", "$d", ""})
		wild := rapid.SampledFrom([]string{"a", "b", "+", "+", "$d", ""})
		path := rapid.Custom(func(t *rapid.T) string { return strings.Join(rapid.SliceOfN(level, 1, 4).Draw(t, "levels"), "/") }).Filter(some)
		filter := rapid.Custom(func(t *rapid.T) string {
			levels := rapid.SliceOfN(wild, 0, 4).Draw(t, "levels")
			if len(levels) == 0 || rapid.Bool().Draw(t, "hash") {
				levels = append(levels, "#")
			}
			return strings.Join(levels, "/")
		}).Filter(some)
		space := rapid.SampledFrom([]string{"main", "other"})
		known := topics{}
		table := trigger.NewTable(known)
		for round := range rapid.IntRange(1, 4).Draw(t, "rounds") {
			var list []*trigger.Trigger
			for i := range rapid.IntRange(0, 12).Draw(t, "triggers") {
				list = append(list, wants(uint32(i+1), space.Draw(t, "workspace"), rapid.SliceOfN(filter, 1, 3).Draw(t, "filters")...))
			}
			table.Replace(list)
			for range 4 {
				// Some are new, far apart, some are known from the round before.
				known.add(historian.Series(rapid.Uint32Range(1, 20_000).Draw(t, "series")), space.Draw(t, "workspace"), path.Draw(t, "path"))
			}
			for id, topic := range known {
				var want []uint32
				for _, x := range list {
					if x.Workspace == topic.Workspace && slices.ContainsFunc(x.Filters, func(f string) bool { return uns.Match(f, topic.Path) }) {
						want = append(want, x.Ref.Pipeline)
					}
				}
				for range 2 { // walked, and then as it was kept
					var got []uint32
					for _, x := range table.Match(id).Triggers {
						got = append(got, x.Ref.Pipeline)
					}
					if !slices.Equal(got, want) {
						t.Fatalf("round %d: %s %q matches %v, want %v", round, topic.Workspace, topic.Path, got, want)
					}
				}
			}
			if got := table.Match(30_000); len(got.Triggers) != 0 {
				t.Fatal("a series without a topic matches something")
			}
		}
	})
}

func TestSetsAreShared(t *testing.T) {
	known := topics{}
	for i := range historian.Series(100) {
		known.add(i+1, "main", fmt.Sprintf("line/%d/temp", i))
	}
	table := trigger.NewTable(known)
	table.Replace([]*trigger.Trigger{wants(1, "main", "line/+/temp"), wants(2, "main", "#", "line/7/temp")})
	first := table.Match(1)
	for i := range historian.Series(100) {
		if table.Match(i+1) != first {
			t.Fatalf("topic %d has a set of its own", i)
		}
	}
	if n := testing.AllocsPerRun(100, func() { table.Match(5) }); n != 0 {
		t.Errorf("%v allocations", n)
	}
}

// plant makes the filters and topics of the design's measurement: 2,000 filters (1,200 exact, 500 with one wildcard, 290 with two,
// 10 broad), 10,000 topics.
func plant() (topics, []*trigger.Trigger) {
	known := topics{}
	for i := range 10_000 {
		known.add(historian.Series(i+1), "main", fmt.Sprintf("site%d/area%d/line%d/cell%d/tag%d", i%2, i/2%5, i/10%10, i/100%10, i/1000))
	}
	var list []*trigger.Trigger
	add := func(f string) { list = append(list, wants(uint32(len(list)+1), "main", f)) }
	for i := range 1200 {
		add(known[historian.Series(i*8+1)].Path)
	}
	for i := range 500 {
		if i%2 == 0 {
			add(fmt.Sprintf("site%d/area%d/line%d/cell%d/+", i%4/2, i/4%5, i/20%10, i/200%10))
		} else {
			add(fmt.Sprintf("site%d/area%d/line%d/cell%d/#", i%4/2, i/4%5, i/20%10, i/200%10))
		}
	}
	for i := range 290 {
		if i < 100 {
			add(fmt.Sprintf("site%d/+/line%d/+/+", i%2, i/2%10))
			continue
		}
		add(fmt.Sprintf("site%d/+/line%d/+/tag%d", i%2, i/2%10, i/20))
	}
	for i := range 10 {
		add(fmt.Sprintf("site%d/area%d/#", i%2, i/2))
	}
	return known, list
}

func BenchmarkTable(b *testing.B) {
	known, list := plant()
	table := trigger.NewTable(known)
	table.Replace(list)
	all := func() (n int) {
		for i := range historian.Series(len(known)) {
			n += len(table.Match(i + 1).Triggers)
		}
		return n
	}
	b.Run("build", func(b *testing.B) {
		for b.Loop() {
			table.Replace(list)
		}
	})
	b.Run("rebuild and walk all", func(b *testing.B) {
		b.ReportAllocs()
		n := 0
		for b.Loop() {
			table.Replace(list)
			n = all()
		}
		b.ReportMetric(float64(n)/float64(len(known)), "matches/topic")
		b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/float64(len(known)), "ns/topic")
	})
	b.Run("match kept", func(b *testing.B) {
		all()
		for i := historian.Series(0); b.Loop(); i++ {
			table.Match(i%10_000 + 1)
		}
	})
	b.Run("match unwanted", func(b *testing.B) {
		table.Replace(list[:1])
		all()
		for i := historian.Series(0); b.Loop(); i++ {
			table.Match(i%10_000 + 1)
		}
	})
	b.Run("linear", func(b *testing.B) {
		n := 0
		for i := historian.Series(0); b.Loop(); i++ {
			for _, x := range list {
				if uns.Match(x.Filters[0], known[i%10_000+1].Path) {
					n++
				}
			}
		}
	})
}
