package uns_test

import (
	"strings"
	"testing"
	"time"

	"millrace/historian"
	"millrace/uns"

	"pgregory.net/rapid"
)

// forever keeps any past, so that only reading the timestamp is tested.
func forever(o *uns.Options) {
	o.DefaultClass = historian.ClassForever
	o.MaxFuture = 250 * 366 * 24 * time.Hour
}

func TestTimestamps(t *testing.T) {
	for _, c := range []struct {
		patch, sent, want string
		scale             uint8
	}{
		// F16: one instant in many forms.
		{``, `1790000000`, "2026-09-21T14:13:20.000Z", 9},
		{``, `1790000000.25`, "2026-09-21T14:13:20.250Z", 7},
		{``, `1790000000250`, "2026-09-21T14:13:20.250Z", 6},
		{``, `1790000000250000`, "2026-09-21T14:13:20.250000Z", 3},
		{``, `1790000000250000000`, "2026-09-21T14:13:20.250000000Z", 0},
		{``, `"2026-09-21T14:13:20.25Z"`, "2026-09-21T14:13:20.250Z", 7},
		{``, `"2026-09-21T16:13:20.250000000+02:00"`, "2026-09-21T14:13:20.250000000Z", 0},
		{``, `"2026-09-21T14:13:20Z"`, "2026-09-21T14:13:20.000Z", 9},
		{``, `"2026-09-21t14:13:20.123456z"`, "2026-09-21T14:13:20.123456Z", 3},
		{``, `"2026-09-21T14:13:20.1234567-00:00"`, "2026-09-21T14:13:20.1234567Z", 2},
		{``, `"2026-09-21T14:13:20.1\u0032Z"`, "2026-09-21T14:13:20.120Z", 7},
		{``, `"2026-09-20T23:43:20-14:30"`, "2026-09-21T14:13:20.000Z", 9},
		{``, `1.79e9`, "2026-09-21T14:13:20.000Z", 9},
		{``, `179000000025e-2`, "2026-09-21T14:13:20.250Z", 7},
		{``, `1790000000.500`, "2026-09-21T14:13:20.500Z", 6},
		{``, `1790000000250.125`, "2026-09-21T14:13:20.250125Z", 3},
		{``, `1790000000.2500000000000`, "2026-09-21T14:13:20.250000000Z", 0},
		{``, `99999999999`, "timestamp_future: timestamp: 99999999999 lies after the year 2261", 0},
		{``, `100000000000`, "1973-03-03T09:46:40.000Z", 6},
		{``, `99999999999999`, "timestamp_future: timestamp: 99999999999999 lies after the year 2261", 0},
		{``, `100000000000000`, "1973-03-03T09:46:40.000000Z", 3},
		{``, `100000000000000000`, "1973-03-03T09:46:40.000000000Z", 0},
		{``, `0`, "1970-01-01T00:00:00.000Z", 9},
		{``, `-0.0`, "1970-01-01T00:00:00.000Z", 8},
		{``, `-1`, "1969-12-31T23:59:59.000Z", 9},
		{``, `9223372036854775807`, "2262-04-11T23:47:16.854775807Z", 0},
		{``, `9223372036854775808`, "timestamp_future: timestamp: 9223372036854775808 lies after the year 2261", 0},
		{``, `1e30`, "timestamp_future: timestamp: 1e30 lies after the year 2261", 0},
		{``, `1e999999999999999999999`, "timestamp_future: timestamp: 1e999999999999999999999 lies after the year 2261", 0},
		{``, `1e-999999999999999999999`, "timestamp_invalid: timestamp: 1e-999999999999999999999 is finer", 0},
		{``, `1790000000.2500000001`, "timestamp_invalid: timestamp: 1790000000.2500000001 is finer than a nanosecond", 0},
		{``, `"1790000000250"`, `timestamp_invalid: timestamp: "1790000000250" is a number sent as text`, 0},
		{``, `"2026-09-21 14:13:20,25"`, `timestamp_invalid: timestamp: "2026-09-21 14:13:20,25" is not RFC 3339: wanted T between date and time, found ' '`, 0},
		{``, `"2026-09-21T14:13:20,25Z"`, `timestamp_invalid:`, 0},
		{``, `"2026-09-21T14:13:20.1234567890Z"`, `timestamp_invalid: timestamp: "2026-09-21T14:13:20.1234567890Z" is not RFC 3339: wanted 1 to 9 digits`, 0},
		{``, `"2026-09-21T14:13:20.Z"`, `timestamp_invalid:`, 0},
		{``, `"2026-02-29T00:00:00Z"`, `timestamp_invalid: timestamp: "2026-02-29T00:00:00Z" names a day that month 2 of 2026 does not have`, 0},
		{``, `"2024-02-29T00:00:00Z"`, "2024-02-29T00:00:00.000Z", 9},
		{``, `"2026-13-01T00:00:00Z"`, `timestamp_invalid:`, 0},
		{``, `"2026-12-31T23:59:60Z"`, `timestamp_invalid: timestamp: "2026-12-31T23:59:60Z" is a leap second`, 0},
		{``, `"2026-09-21T24:00:00Z"`, `timestamp_invalid:`, 0},
		{``, `"2026-09-21T14:13:20+2:00"`, `timestamp_invalid:`, 0},
		{``, `"2026-09-21T14:13:20Z "`, `timestamp_invalid:`, 0},
		{``, `"1677-01-01T00:00:00Z"`, `timestamp_too_old: timestamp: 1677-01-01T00:00:00Z lies before the year 1678`, 0},
		{``, `"0000-01-01T00:00:00Z"`, `timestamp_too_old: timestamp: 0000-01-01T00:00:00Z lies before the year 1678`, 0},
		{``, `"1678-01-01T00:00:00Z"`, "1678-01-01T00:00:00.000Z", 9},
		{``, `"2026"`, `timestamp_invalid:`, 0},
		{``, `""`, `timestamp_invalid:`, 0},
		{``, `"yesterday"`, `timestamp_invalid:`, 0},
		// F16: a declared unit wins.
		{`{"timestampUnit":"s"}`, `100000`, "1970-01-02T03:46:40.000Z", 9},
		{`{"timestampUnit":"ms"}`, `1790000000`, "1970-01-21T17:13:20.000Z", 6},
		{`{"timestampUnit":"us"}`, `1790000000250000`, "2026-09-21T14:13:20.250000Z", 3},
		{`{"timestampUnit":"ns"}`, `5`, "1970-01-01T00:00:00.000000005Z", 0},
		{`{"timestampUnit":"ns"}`, `0.5`, "timestamp_invalid: timestamp: 0.5 is finer", 0},
		{`{"timestampUnit":"s"}`, `1790000000250`, "timestamp_future: timestamp: 1790000000250 lies after the year 2261", 0},
		// F15
		{``, `"2026-07-01T14:00:00"`, `timestamp_invalid: timestamp: "2026-07-01T14:00:00" has no zone: send Z or an offset, or declare timeZone on the topic`, 0},
		{`{"timeZone":"Europe/Berlin"}`, `"2026-07-01T14:00:00"`, "2026-07-01T12:00:00.000Z", 9},
		{`{"timeZone":"Europe/Berlin"}`, `"2026-01-01T14:00:00.5"`, "2026-01-01T13:00:00.500Z", 8},
		{`{"timeZone":"Europe/Berlin"}`, `"2026-07-01T14:00:00Z"`, "2026-07-01T14:00:00.000Z", 9},
		{`{"timeZone":"Europe/Berlin"}`, `"2026-03-29T01:59:59"`, "2026-03-29T00:59:59.000Z", 9},
		{`{"timeZone":"Europe/Berlin"}`, `"2026-03-29T02:30:00"`, `timestamp_invalid: timestamp: "2026-03-29T02:30:00" does not exist in Europe/Berlin`, 0},
		{`{"timeZone":"Europe/Berlin"}`, `"2026-03-29T03:00:00"`, "2026-03-29T01:00:00.000Z", 9},
		{`{"timeZone":"Europe/Berlin"}`, `"2026-10-25T02:30:00"`, "uncertain 2026-10-25T00:30:00.000Z", 9},
		{`{"timeZone":"Europe/Berlin"}`, `"2026-10-25T03:00:00"`, "2026-10-25T02:00:00.000Z", 9},
		{`{"timeZone":"Pacific/Apia"}`, `"2011-12-30T12:00:00"`, `timestamp_invalid: timestamp: "2011-12-30T12:00:00" does not exist`, 0},
		{`{"timeZone":"America/New_York"}`, `"2026-11-01T01:30:00"`, "uncertain 2026-11-01T05:30:00.000Z", 9},
	} {
		b := newBox(t, forever)
		if c.patch != "" {
			b.set(t, "a", c.patch)
		}
		v, s := b.send(t, "a", `{"value":1,"timestamp":`+c.sent+`}`)
		got := v.String()
		if v.OK() {
			got = string(uns.AppendTime(nil, s.Time, s.Scale))
			if s.Quality != historian.Good {
				got = s.Quality.String() + " " + got
			}
		}
		if v.OK() && (got != c.want || s.Scale != c.scale || !s.Stamped) || !v.OK() && !strings.HasPrefix(got, c.want) {
			t.Errorf("%s %s: got %s scale %d, want %s scale %d", c.patch, c.sent, got, s.Scale, c.want, c.scale)
		}
	}
}

// F17: a device's clock that is off is named with the date it showed.
func TestTimestampWindow(t *testing.T) {
	for _, c := range []struct{ late, retention, sent, want string }{
		{"retention", "1d", `0`, "timestamp_too_old: timestamp: 1970-01-01T00:00:00.000Z is 20717 days old, but the topic keeps 1d"},
		{"retention", "32d", `"2023-01-01T00:00:00Z"`, "timestamp_too_old: timestamp: 2023-01-01T00:00:00.000Z is 1359 days old, but the topic keeps 32d"},
		{"retention", "1d", `"2036-02-07T06:28:16Z"`, "timestamp_future: timestamp: 2036-02-07T06:28:16.000Z is 3425 days ahead of the box's clock, at most 5m0s are allowed"},
		{"retention", "1d", `1790000600250`, "timestamp_future: timestamp: 2026-09-21T14:23:20.250Z is 10m0s ahead"},
		{"retention", "1d", `1790000300250`, "stored"},
		{"retention", "1d", `1790000300251`, "timestamp_future"},
		{"retention", "1d", `1789913600250`, "stored"},
		{"retention", "1d", `1789913600249`, "timestamp_too_old"},
		{"retention", "forever", `0`, "stored"},
		{"retention", "forever", `"1678-01-01T00:00:00Z"`, "stored"},
		{"retention", "forever", `9223372036854775807`, "timestamp_future: timestamp: 2262-04-11T23:47:16.854775807Z"},
		{"1h", "forever", `1789996400250`, "stored"},
		{"1h", "forever", `1789996400249`, "timestamp_too_old: timestamp: 2026-09-21T13:13:20.249Z is 1h0m0.001s old, but values may be at most 1h0m0s late"},
		{"7d", "1d", `1789913600249`, "stored"},
	} {
		b := newBox(t, func(o *uns.Options) { o.LateWindow = c.late })
		b.set(t, "a", `{"retention":"`+c.retention+`"}`)
		if v, _ := b.send(t, "a", `{"value":1,"timestamp":`+c.sent+`}`); !strings.HasPrefix(v.String(), c.want) {
			t.Errorf("%s %s %s: got %s, want %s", c.late, c.retention, c.sent, v, c.want)
		}
	}
}

// F18: equal timestamps are all kept, in order.
func TestEqualTimestamps(t *testing.T) {
	b := newBox(t, nil)
	batch := &uns.Batch{}
	for _, n := range []string{"600", "700", "800"} {
		batch.Messages = append(batch.Messages, uns.Message{Workspace: "main", Path: "a", Payload: []byte(`{"value":` + n + `,"timestamp":1790000000000}`)})
	}
	if err := b.Accept(t.Context(), batch); err != nil {
		t.Fatal(err)
	}
	for i, want := range []int64{600, 700, 800} {
		if s := b.store.samples[i]; s.Value.Mant != want || s.Time != 1790000000000*1e6 {
			t.Errorf("sample %d: %+v, want %d", i, s, want)
		}
	}
}

func TestTextTimeAgainstStandardLibrary(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		at := time.Unix(0, rapid.Int64().Draw(t, "ns"))
		at = at.In(time.FixedZone("", 60*rapid.IntRange(-23*60, 23*60).Draw(t, "offset")))
		text := at.Format(time.RFC3339Nano)
		ns, v := uns.TextTime(text)
		// The first and last days of what fits are refused, year 1678 to 2261 is what is promised.
		if at.Year() < 1678 || at.Year() > 2261 {
			return
		}
		if v.Reason != uns.Stored || ns != at.UnixNano() {
			t.Fatalf("%s: got %d %v, want %d", text, ns, v, at.UnixNano())
		}
		if got, want := string(uns.AppendTime(nil, ns, 0)), at.UTC().Format("2006-01-02T15:04:05.000000000Z"); got != want {
			t.Fatalf("AppendTime: got %s, want %s", got, want)
		}
	})
}

func TestAppendTime(t *testing.T) {
	for _, c := range []struct {
		ns    int64
		scale uint8
		want  string
	}{
		{0, 9, "1970-01-01T00:00:00.000Z"},
		{-1, 0, "1969-12-31T23:59:59.999999999Z"},
		{1790000000250000000, 7, "2026-09-21T14:13:20.250Z"},
		{1790000000250000000, 5, "2026-09-21T14:13:20.2500Z"},
		{1790000000250000000, 200, "2026-09-21T14:13:20.250Z"},
	} {
		if got := string(uns.AppendTime(nil, c.ns, c.scale)); got != c.want {
			t.Errorf("%d scale %d: got %s, want %s", c.ns, c.scale, got, c.want)
		}
	}
}
