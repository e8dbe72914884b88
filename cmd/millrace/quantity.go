package main

import (
	"fmt"
	"strconv"
	"strings"
	"time"
)

// auto is how `auto` stands in a duration: the part chooses by itself.
const auto = time.Duration(-1)

var sizeUnits = []struct {
	name string
	unit int64
}{{"GiB", 1 << 30}, {"MiB", 1 << 20}, {"KiB", 1 << 10}, {"B", 1}}

// parseSize reads bytes as config.yaml writes them: 4GiB, 256KiB, or a plain number.
func parseSize(s string) (int64, error) {
	text, unit := strings.TrimSpace(s), int64(1)
	for _, u := range sizeUnits {
		if rest, ok := strings.CutSuffix(text, u.name); ok {
			text, unit = strings.TrimSpace(rest), u.unit
			break
		}
	}
	n, err := strconv.ParseInt(text, 10, 64)
	if err != nil || n > (1<<63-1)/unit || n < -(1<<63-1)/unit {
		return 0, fmt.Errorf("%q is not a size; write bytes, or a whole number with KiB, MiB or GiB", s)
	}
	return n * unit, nil
}

func formatSize(n int64) string {
	for _, u := range sizeUnits {
		if n != 0 && n%u.unit == 0 && u.unit > 1 {
			return strconv.FormatInt(n/u.unit, 10) + u.name
		}
	}
	return strconv.FormatInt(n, 10)
}

// parseDuration reads a duration as Go writes it, or with d for days of 24 hours, or auto.
func parseDuration(s string) (time.Duration, error) {
	text := strings.TrimSpace(s)
	if text == "auto" {
		return auto, nil
	}
	if days, ok := strings.CutSuffix(text, "d"); ok {
		if n, err := strconv.ParseInt(days, 10, 64); err == nil && n >= 0 && n < 100_000 {
			return time.Duration(n) * 24 * time.Hour, nil
		}
	}
	d, err := time.ParseDuration(text)
	if err != nil {
		return 0, fmt.Errorf("%q is not a duration; write 500ms, 5s, 1h30m or 7d", s)
	}
	return d, nil
}

func formatDuration(d time.Duration) string {
	if d == auto {
		return "auto"
	}
	if d >= 24*time.Hour && d%(24*time.Hour) == 0 {
		return strconv.FormatInt(int64(d/(24*time.Hour)), 10) + "d"
	}
	s := d.String()
	for _, cut := range []string{"m0s", "h0m"} {
		if strings.HasSuffix(s, cut) {
			s = s[:len(s)-2]
		}
	}
	return s
}

// parsePerMinute reads 15/min, or the plain number.
func parsePerMinute(s string) (int, error) {
	n, err := strconv.Atoi(strings.TrimSpace(strings.TrimSuffix(strings.TrimSpace(s), "/min")))
	if err != nil {
		return 0, fmt.Errorf("%q is not a number a minute; write 15/min, or 0/min for no limit", s)
	}
	return n, nil
}
