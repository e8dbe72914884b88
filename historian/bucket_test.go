package historian_test

import (
	"math"
	"strings"
	"testing"
	"time"
	_ "time/tzdata"

	"github.com/google/go-cmp/cmp"

	"millrace/historian"
)

func zone(t testing.TB, name string) *time.Location {
	t.Helper()
	z, err := time.LoadLocation(name)
	if err != nil {
		t.Fatal(err)
	}
	return z
}

// starts are the beginnings of the buckets from..to as the wall shows them, each with its length.
func starts(s historian.Step, from, to time.Time) (out []string) {
	b := historian.NewBuckets(s)
	for t := from.UnixNano(); t < to.UnixNano(); {
		a, z := b.At(t)
		out = append(out, time.Unix(0, a).In(s.Zone).Format("01-02T15:04:05")+" "+strings.NewReplacer("h0m0s", "h", "m0s", "m").Replace(time.Duration(z-a).String()))
		t = z
	}
	return out
}

func TestBucketsOnTheWall(t *testing.T) {
	const h = time.Hour
	berlin, sydney := zone(t, "Europe/Berlin"), zone(t, "Australia/Sydney")
	for _, c := range []struct {
		name string
		step historian.Step
		from string
		n    time.Duration
		want []string
	}{
		{"a day of 25 hours", historian.Step{Every: 24 * h, Zone: berlin}, "2026-10-24T00:00:00", 3 * 24 * h, []string{"10-24T00:00:00 24h", "10-25T00:00:00 25h", "10-26T00:00:00 24h"}},
		{"a day of 23 hours", historian.Step{Every: 24 * h, Zone: berlin}, "2026-03-28T00:00:00", 47 * h, []string{"03-28T00:00:00 24h", "03-29T00:00:00 23h"}},
		{"the hour that is there twice", historian.Step{Every: h, Zone: berlin}, "2026-10-25T01:00:00", 4 * h, []string{"10-25T01:00:00 1h", "10-25T02:00:00 1h", "10-25T02:00:00 1h", "10-25T03:00:00 1h"}},
		{"the hour that is left out", historian.Step{Every: h, Zone: berlin}, "2026-03-29T01:00:00", 2 * h, []string{"03-29T01:00:00 1h", "03-29T03:00:00 1h"}},
		{"night shift of 9 hours", historian.Step{Every: 8 * h, Offset: 6 * h, Zone: berlin}, "2026-10-24T14:00:00", 24 * h, []string{"10-24T14:00:00 8h", "10-24T22:00:00 9h", "10-25T06:00:00 8h"}},
		{"night shift of 7 hours", historian.Step{Every: 8 * h, Offset: 6 * h, Zone: berlin}, "2026-03-28T14:00:00", 22 * h, []string{"03-28T14:00:00 8h", "03-28T22:00:00 7h", "03-29T06:00:00 8h"}},
		{"a shift that begins in the doubled hour", historian.Step{Every: 8 * h, Offset: 2 * h, Zone: berlin}, "2026-10-24T18:00:00", 17 * h, []string{"10-24T18:00:00 8h", "10-25T02:00:00 9h"}},
		{"a shift that begins in the gap", historian.Step{Every: 8 * h, Offset: 150 * time.Minute, Zone: berlin}, "2026-03-28T18:30:00", 15 * h, []string{"03-28T18:30:00 7h30m", "03-29T03:00:00 7h30m"}},
		{"30 s, 15 s back", historian.Step{Every: 30 * time.Second, Offset: -15 * time.Second, Zone: berlin}, "2026-10-25T02:59:45", 60 * time.Second, []string{"10-25T02:59:45 30s", "10-25T03:00:15 30s"}},
		{"weeks from Monday", historian.Step{Every: 7 * 24 * h, Zone: berlin}, "2026-10-19T00:00:00", 8 * 24 * h, []string{"10-19T00:00:00 169h", "10-26T00:00:00 168h"}},
		{"months", historian.Step{Months: 1, Zone: berlin}, "2026-10-01T00:00:00", 40 * 24 * h, []string{"10-01T00:00:00 745h", "11-01T00:00:00 720h"}},
		{"quarters from the 1st, 06:00", historian.Step{Months: 3, Offset: 6 * h, Zone: berlin}, "2026-01-01T06:00:00", 24 * h, []string{"01-01T06:00:00 2159h"}},
		{"Sydney, 25 hours", historian.Step{Every: 24 * h, Zone: sydney}, "2026-04-05T00:00:00", 24 * h, []string{"04-05T00:00:00 25h"}},
		{"Sydney, hours", historian.Step{Every: h, Zone: sydney}, "2026-04-05T01:00:00", 3 * h, []string{"04-05T01:00:00 1h", "04-05T02:00:00 1h", "04-05T02:00:00 1h"}},
		{"hours of Kolkata", historian.Step{Every: h, Zone: zone(t, "Asia/Kolkata")}, "2026-04-05T01:00:00", 2 * h, []string{"04-05T01:00:00 1h", "04-05T02:00:00 1h"}},
		{"half an hour of summer time", historian.Step{Every: h, Zone: zone(t, "Australia/Lord_Howe")}, "2026-04-05T01:00:00", 150 * time.Minute, []string{"04-05T01:00:00 1h30m", "04-05T02:00:00 1h"}},
		{"a day that was left out", historian.Step{Every: 24 * h, Zone: zone(t, "Pacific/Apia")}, "2011-12-29T00:00:00", 48 * h, []string{"12-29T00:00:00 24h", "12-31T00:00:00 24h"}},
		{"no midnight", historian.Step{Every: 24 * h, Zone: zone(t, "Africa/Cairo")}, "2026-04-23T00:00:00", 30 * h, []string{"04-23T00:00:00 24h", "04-24T01:00:00 23h"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			from, err := time.ParseInLocation("2006-01-02T15:04:05", c.from, c.step.Zone)
			if err != nil {
				t.Fatal(err)
			}
			if d := cmp.Diff(c.want, starts(c.step, from, from.Add(c.n))); d != "" {
				t.Errorf("(-want +got):\n%s", d)
			}
		})
	}
}

func TestStepsThatMakeNoSense(t *testing.T) {
	const day = 24 * time.Hour
	for _, s := range []historian.Step{
		{Every: -1}, {Every: time.Microsecond}, {Every: 36 * time.Hour}, {Every: 367 * day}, {Months: 13}, {Months: -1}, {Months: 1, Every: day},
		{Offset: time.Hour}, {Every: time.Hour, Offset: time.Hour}, {Every: time.Hour, Offset: -time.Hour}, {Every: time.Hour, Offset: 1}, {Months: 1, Offset: 28 * day},
	} {
		if s.Validate() == nil {
			t.Errorf("%+v is taken", s)
		}
	}
	for _, s := range []historian.Step{{}, {Every: time.Millisecond}, {Every: 366 * day, Offset: -365 * day}, {Months: 12, Offset: 6 * time.Hour}} {
		if err := s.Validate(); err != nil {
			t.Errorf("%+v: %v", s, err)
		}
	}
}

var fuzzZones = []string{"UTC", "Europe/Berlin", "Australia/Sydney", "Australia/Lord_Howe", "Asia/Kolkata", "America/St_Johns", "Africa/Cairo",
	"Pacific/Apia", "America/New_York", "Asia/Kathmandu", "Africa/Casablanca", "America/Sao_Paulo", "Asia/Tehran", "Antarctica/Troll", "Africa/Monrovia"}

var fuzzSteps = []historian.Step{{Every: time.Hour}, {Every: 24 * time.Hour}, {Every: 8 * time.Hour, Offset: 6 * time.Hour}, {Months: 1}, {Months: 12},
	{Every: 7 * 24 * time.Hour}, {Every: 15 * time.Minute}, {Every: 30 * time.Second, Offset: -15 * time.Second}, {Every: 7 * time.Minute}, {Every: 5 * time.Hour},
	{Months: 3, Offset: 6 * time.Hour}, {Every: 24 * time.Hour, Offset: -3 * time.Hour}, {Every: 12 * time.Hour}, {Every: 2 * time.Hour, Offset: 30 * time.Minute},
	{Every: 6 * time.Minute}, {Every: time.Millisecond}}

// FuzzBuckets holds buckets against the arithmetic of time.Time: they follow each other without a hole, every
// time lies in its own, and they begin where the wall says so.
func FuzzBuckets(f *testing.F) {
	for z := range fuzzZones {
		for s := range fuzzSteps {
			f.Add(uint8(z), uint8(s), int64(1_792_890_000_000_000_000))
			f.Add(uint8(z), uint8(s), int64(1_774_746_000_000_000_000))
			f.Add(uint8(z), uint8(s), int64(1_325_239_200_000_000_000))
		}
	}
	f.Add(uint8(1), uint8(1), int64(math.MinInt64))
	f.Add(uint8(1), uint8(3), int64(math.MaxInt64))
	zones := make([]*time.Location, len(fuzzZones))
	for i, name := range fuzzZones {
		zones[i] = zone(f, name)
	}
	f.Fuzz(func(t *testing.T, z, s uint8, ns int64) {
		step := fuzzSteps[int(s)%len(fuzzSteps)]
		step.Zone = zones[int(z)%len(zones)]
		fresh := func(ns int64) (int64, int64) { return historian.NewBuckets(step).At(ns) }
		b := historian.NewBuckets(step)
		from, to := b.At(ns)
		if ns < from || ns >= to && ns != math.MaxInt64 {
			t.Fatalf("%d is not within %d and %d", ns, from, to)
		}
		for _, at := range []int64{from, to - 1, from + (to-from)/2} {
			a, z := fresh(at)
			if a != from || z != to {
				t.Fatalf("%d is in %d to %d, %d is in %d to %d", ns, from, to, at, a, z)
			}
		}
		if from > math.MinInt64 {
			if _, z := fresh(from - 1); z != from {
				t.Fatalf("before %d ends %d", from, z)
			}
		}
		if to < math.MaxInt64 {
			if a, _ := fresh(to); a != to {
				t.Fatalf("behind %d begins %d", to, a)
			}
		}
		if from < -8e18 || to > 8e18 {
			return
		}
		// It begins where the wall is at a beginning, or where the wall leaves one out.
		begin := time.Unix(0, from).In(step.Zone)
		shift := begin.Add(-time.Nanosecond)
		_, was := shift.Zone()
		_, is := begin.Zone()
		// The wall as if it were UTC, moved back by the offset.
		wall := time.Unix(0, from+int64(is)*1e9).UTC().Add(-step.Offset)
		on := false
		switch {
		case step.Months > 0:
			on = wall.Equal(time.Date(wall.Year(), wall.Month(), 1, 0, 0, 0, 0, time.UTC)) && (int(wall.Month())-1)%step.Months == 0
		default:
			monday := time.Date(1970, 1, 5, 0, 0, 0, 0, time.UTC)
			on = math.Mod(float64(wall.Sub(monday)/time.Millisecond), float64(step.Every/time.Millisecond)) == 0
		}
		if !on && is <= was {
			t.Fatalf("%v is no beginning (%+v)", begin, step)
		}
		if step.Every == 24*time.Hour && step.Offset == 0 {
			y, m, d := begin.Date()
			for _, at := range []int64{to - 1, from + (to-from)/2} {
				if ay, am, ad := time.Unix(0, at).In(step.Zone).Date(); ay != y || am != m || ad != d {
					// Where a day begins twice, the minutes before the second time still show the day before.
					if time.Duration(to-from) <= 24*time.Hour {
						t.Fatalf("%v is not on the day that begins %v", time.Unix(0, at).In(step.Zone), begin)
					}
				}
			}
		}
	})
}
