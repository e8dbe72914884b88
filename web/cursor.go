package web

import (
	"encoding/base64"
	"encoding/binary"
	"hash/crc32"

	"millrace/historian"
)

// A cursor is opaque to callers: base64url of a kind byte, fields, and a checksum that catches cursors which
// were cut short or made up. It is no secret and no authority: every page checks the caller afresh.
const (
	pathCursor   byte = 'p' // the last path of a page
	sampleCursor byte = 's' // history goes on within a topic
	topicCursor  byte = 't' // history goes on after a topic
	bucketCursor byte = 'b' // aggregates go on within a topic
	afterCursor  byte = 'a' // aggregates go on after a topic
)

var errCursor = invalid("cursor", "the cursor is not one that this call gave out", "send the `next` of the page before, unchanged, with the same parameters")

func sealCursor(body []byte) string {
	return base64.RawURLEncoding.EncodeToString(binary.BigEndian.AppendUint32(body, crc32.ChecksumIEEE(body)))
}

// openCursor returns the body behind the kind byte.
func openCursor(cursor string, kinds string) (kind byte, body []byte, err error) {
	raw, decodeErr := base64.RawURLEncoding.DecodeString(cursor)
	if decodeErr != nil || len(raw) < 5 {
		return 0, nil, errCursor
	}
	body, sum := raw[:len(raw)-4], binary.BigEndian.Uint32(raw[len(raw)-4:])
	if crc32.ChecksumIEEE(body) != sum {
		return 0, nil, errCursor
	}
	for i := range len(kinds) {
		if kinds[i] == body[0] {
			return body[0], body[1:], nil
		}
	}
	return 0, nil, errCursor
}

// sealPath makes the cursor of a listing in path order; "" stays "".
func sealPath(path string) string {
	if path == "" {
		return ""
	}
	return sealCursor(append([]byte{pathCursor}, path...))
}

func openPath(cursor string) (string, error) {
	if cursor == "" {
		return "", nil
	}
	_, body, err := openCursor(cursor, string(pathCursor))
	return string(body), err
}

// place is where the next page of history starts. It carries the window, so that `now` and `-6h` keep the
// meaning they had on the first page.
type place struct {
	from, to   int64
	desc       bool
	aggregated bool
	path       string
	after      *historian.Cursor // nil: behind the whole topic; of aggregates Time is where the next bucket begins
}

func (p place) seal() string {
	kind := topicCursor
	switch {
	case p.aggregated && p.after != nil:
		kind = bucketCursor
	case p.aggregated:
		kind = afterCursor
	case p.after != nil:
		kind = sampleCursor
	}
	b := []byte{kind, 0}
	if p.desc {
		b[1] = 1
	}
	b = binary.BigEndian.AppendUint64(b, uint64(p.from))
	b = binary.BigEndian.AppendUint64(b, uint64(p.to))
	if p.after != nil {
		b = binary.BigEndian.AppendUint64(b, uint64(p.after.Time))
		b = binary.BigEndian.AppendUint32(b, p.after.Ord)
	}
	return sealCursor(append(b, p.path...))
}

func openPlace(cursor string) (place, error) {
	kind, b, err := openCursor(cursor, string([]byte{sampleCursor, topicCursor, bucketCursor, afterCursor}))
	if err != nil {
		return place{}, err
	}
	need := 17
	within := kind == sampleCursor || kind == bucketCursor
	if within {
		need += 12
	}
	if len(b) <= need || b[0] > 1 {
		return place{}, errCursor
	}
	p := place{
		desc:       b[0] == 1,
		aggregated: kind == bucketCursor || kind == afterCursor,
		from:       int64(binary.BigEndian.Uint64(b[1:])),
		to:         int64(binary.BigEndian.Uint64(b[9:])),
	}
	if within {
		p.after = &historian.Cursor{Time: int64(binary.BigEndian.Uint64(b[17:])), Ord: binary.BigEndian.Uint32(b[25:])}
	}
	p.path = string(b[need:])
	return p, nil
}
