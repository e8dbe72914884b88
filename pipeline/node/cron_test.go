package node

import (
	"testing"
	"time"
)

func TestCron(t *testing.T) {
	berlin, err := time.LoadLocation("Europe/Berlin")
	if err != nil {
		t.Fatal(err)
	}
	cases := []struct {
		text  string
		zone  *time.Location
		after string
		want  string
	}{
		{"* * * * *", nil, "2026-12-01T10:00:30Z", "2026-12-01T10:01:00Z"},
		{"*/15 * * * *", nil, "2026-12-01T10:45:00Z", "2026-12-01T11:00:00Z"},
		{"0 6,14,22 * * mon-fri", nil, "2026-12-04T22:00:00Z", "2026-12-07T06:00:00Z"},
		{"0 6 * * *", berlin, "2026-12-01T05:00:00Z", "2026-12-02T05:00:00Z"},
		{"30 2 * * *", berlin, "2027-03-27T10:00:00Z", "2027-03-29T00:30:00Z"}, // the 28th has no 02:30
		{"0 0 29 2 *", nil, "2026-12-01T00:00:00Z", "2028-02-29T00:00:00Z"},
		{"0 0 1 * sun", nil, "2026-12-01T00:00:00Z", "2026-12-06T00:00:00Z"}, // either of the two
		{"0 0 * * 7", nil, "2026-12-01T00:00:00Z", "2026-12-06T00:00:00Z"},
		{"5/20 * * * *", nil, "2026-12-01T00:05:00Z", "2026-12-01T00:25:00Z"},
	}
	for _, c := range cases {
		x, err := parseCron(c.text, c.zone)
		if err != nil {
			t.Errorf("%q: %v", c.text, err)
			continue
		}
		after, _ := time.Parse(time.RFC3339, c.after)
		if got := x.next(after).UTC().Format(time.RFC3339); got != c.want {
			t.Errorf("%q after %s: %s, want %s", c.text, c.after, got, c.want)
		}
	}
	for _, bad := range []string{"", "* * * *", "60 * * * *", "* 24 * * *", "* * 0 * *", "* * 30 2 *", "x * * * *", "5-1 * * * *", "*/0 * * * *"} {
		if _, err := parseCron(bad, nil); err == nil {
			t.Errorf("%q was taken", bad)
		}
	}
	p, _ := NewPlanner(&Schedule{Every: 10 * time.Second})
	if got := p.Next(time.UnixMilli(25_000)); got.UnixMilli() != 30_000 {
		t.Errorf("planned at %d", got.UnixMilli())
	}
}
