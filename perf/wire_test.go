package perf_test

import (
	"bytes"
	"testing"

	"millrace/perf"
)

func TestPublishPacket(t *testing.T) {
	for _, tc := range []struct {
		name    string
		version byte
		ask     string
		want    []byte
	}{
		{"3.1.1", 4, "", []byte{0x32, 8, 0, 3, 'a', '/', 'b', 0, 9, '1'}},
		{"5", 5, "", []byte{0x32, 9, 0, 3, 'a', '/', 'b', 0, 9, 0, '1'}},
		{"5, asking", 5, "r", []byte{0x32, 24, 0, 3, 'a', '/', 'b', 0, 9, 15, 8, 0, 1, 'r', 9, 0, 8, 0, 0, 0, 0, 0, 0, 1, 2, '1'}},
	} {
		if got := perf.AppendPublish(nil, tc.version, []byte("a/b"), 9, tc.ask, 258, []byte("1")); !bytes.Equal(got, tc.want) {
			t.Errorf("%s: % x, want % x", tc.name, got, tc.want)
		}
	}
}

func TestConnectPacket(t *testing.T) {
	want := []byte{0x10, 21, 0, 4, 'M', 'Q', 'T', 'T', 5, 0xc2, 0, 60, 0, 0, 1, 'c', 0, 1, 'u', 0, 2, 'p', 'w'}
	if got := perf.AppendConnect(nil, 5, "c", "u", "pw", 60); !bytes.Equal(got, want) {
		t.Errorf("% x, want % x", got, want)
	}
}

func TestPublishRoundTrip(t *testing.T) {
	long := bytes.Repeat([]byte("x"), 300)
	b := perf.AppendPublish(nil, 5, []byte("a/b"), 7, string(long), 1, long)
	for cut := range len(b) {
		if _, _, size, err := perf.NextPacket(b[:cut]); size != 0 || err != nil {
			t.Fatalf("%d of %d bytes: size %d, %v", cut, len(b), size, err)
		}
	}
	first, body, size, err := perf.NextPacket(append(b, 0xd0, 0))
	if err != nil || size != len(b) {
		t.Fatalf("size %d of %d, %v", size, len(b), err)
	}
	d, err := perf.ParsePublish(5, first, body)
	if err != nil {
		t.Fatal(err)
	}
	topic, id, correlation, payload := d.Fields()
	if topic != "a/b" || id != 7 || !bytes.Equal(correlation, []byte{0, 0, 0, 0, 0, 0, 0, 1}) || payload != string(long) {
		t.Errorf("%s %d % x %d bytes", topic, id, correlation, len(payload))
	}
}

// FuzzParse feeds the decoder what a broken server might send.
func FuzzParse(f *testing.F) {
	f.Add(byte(5), perf.AppendPublish(nil, 5, []byte("a/b"), 7, "r", 1, []byte("1")))
	f.Add(byte(4), perf.AppendPublish(nil, 4, []byte("a/b"), 7, "", 0, []byte("1")))
	f.Add(byte(5), []byte{0x20, 9, 0, 0, 6, 0x21, 0, 10, 0x22, 0, 1})
	f.Add(byte(5), []byte{0x30, 0xff, 0xff, 0xff, 0xff, 0x7f})
	f.Fuzz(func(t *testing.T, version byte, b []byte) {
		first, body, size, err := perf.NextPacket(b)
		if size > len(b) || size > 0 && err != nil {
			t.Fatalf("size %d of %d with %v", size, len(b), err)
		}
		if size == 0 {
			return
		}
		if d, err := perf.ParsePublish(version, first, body); err == nil {
			if topic, _, _, payload := d.Fields(); len(topic)+len(payload) > len(body) {
				t.Fatal("a delivery larger than its packet")
			}
		}
		_, _ = perf.ParseConnack(version, body)
	})
}
