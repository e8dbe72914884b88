package history

import (
	"encoding/binary"
	"encoding/json"
	"errors"
	"time"
)

// A row of a run is packed: its header, then a part for each node that was reached. What went in and out of nodes lies in
// a row of its own, as JSON, because few runs keep it. FORMAT.md draws both.

const rowVersion = 1

var errRow = errors.New("history: a row of a run is damaged")

var modes = []string{"trigger", "schedule", "webhook", "manual", "replay", "test"}

func modeNumber(name string) byte {
	for i, m := range modes {
		if m == name {
			return byte(i)
		}
	}
	return 0
}

func appendText(dst []byte, s string) []byte {
	dst = binary.AppendUvarint(dst, uint64(len(s)))
	return append(dst, s...)
}

// appendRow packs a run without what its nodes got and gave.
func appendRow(dst []byte, r *Run) []byte {
	dst = append(dst, rowVersion, byte(r.Status), modeNumber(r.Mode), r.Detail, r.Trigger.Scale, r.Trigger.Quality)
	dst = binary.AppendUvarint(dst, uint64(r.Version))
	dst = binary.AppendVarint(dst, r.Started.UnixMicro())
	dst = binary.AppendUvarint(dst, uint64(r.Duration.Microseconds()))
	dst = binary.AppendUvarint(dst, uint64(r.Attempt))
	dst = binary.AppendUvarint(dst, uint64(r.Counted))
	dst = binary.AppendVarint(dst, r.Trigger.Time)
	dst = binary.AppendUvarint(dst, uint64(r.Trigger.Node))
	dst = appendText(dst, r.Trigger.Workspace)
	dst = appendText(dst, r.Trigger.Topic)
	dst = appendText(dst, r.Error)
	dst = binary.AppendVarint(dst, int64(r.Node))
	n := 0
	for i := range r.Nodes {
		if r.Nodes[i].Status != NodeSkipped && r.Nodes[i].Status != NodeIdle {
			n++
		}
	}
	if r.Detail == Minimal {
		n = 0
	}
	dst = binary.AppendUvarint(dst, uint64(n))
	for i := range r.Nodes {
		x := &r.Nodes[i]
		if n == 0 || x.Status == NodeSkipped || x.Status == NodeIdle {
			continue
		}
		dst = append(dst, x.Status)
		dst = binary.AppendUvarint(dst, uint64(x.Number))
		dst = binary.AppendUvarint(dst, uint64(x.Duration.Microseconds()))
		dst = appendText(dst, x.Error)
		if x.Error != "" {
			dst = binary.AppendUvarint(dst, uint64(x.Line))
			dst = binary.AppendUvarint(dst, uint64(x.Column))
		}
	}
	return dst
}

// unpacker reads what was packed; the first fault sticks.
type unpacker struct {
	b   []byte
	bad bool
}

func (u *unpacker) octet() byte {
	if len(u.b) == 0 {
		u.bad = true
		return 0
	}
	c := u.b[0]
	u.b = u.b[1:]
	return c
}

func (u *unpacker) uvarint() uint64 {
	v, n := binary.Uvarint(u.b)
	if n <= 0 {
		u.bad, u.b = true, nil
		return 0
	}
	u.b = u.b[n:]
	return v
}

func (u *unpacker) varint() int64 {
	v, n := binary.Varint(u.b)
	if n <= 0 {
		u.bad, u.b = true, nil
		return 0
	}
	u.b = u.b[n:]
	return v
}

func (u *unpacker) text() string {
	n := u.uvarint()
	if n > uint64(len(u.b)) {
		u.bad, u.b = true, nil
		return ""
	}
	s := string(u.b[:n])
	u.b = u.b[n:]
	return s
}

func readRow(id RunID, b []byte) (*Run, error) {
	u := &unpacker{b: b}
	if u.octet() != rowVersion {
		return nil, errRow
	}
	r := &Run{ID: id}
	r.Status = Status(u.octet())
	if m := int(u.octet()); m < len(modes) {
		r.Mode = modes[m]
	}
	r.Detail, r.Trigger.Scale, r.Trigger.Quality = u.octet(), u.octet(), u.octet()
	r.Replay = r.Mode == "replay"
	r.Version = uint32(u.uvarint())
	r.Started = time.UnixMicro(u.varint()).UTC()
	r.Duration = time.Duration(u.uvarint()) * time.Microsecond
	r.Attempt = int(u.uvarint())
	r.Counted = uint32(u.uvarint())
	r.Trigger.Time = u.varint()
	r.Trigger.Node = uint16(u.uvarint())
	r.Trigger.Workspace, r.Trigger.Topic = u.text(), u.text()
	r.Error = u.text()
	r.Node = int(u.varint())
	n := u.uvarint()
	for i := uint64(0); i < n && !u.bad; i++ {
		x := NodeRun{Status: u.octet(), Number: int(u.uvarint())}
		x.Duration = time.Duration(u.uvarint()) * time.Microsecond
		if x.Error = u.text(); x.Error != "" {
			x.Line, x.Column = int(u.uvarint()), int(u.uvarint())
		}
		r.Nodes = append(r.Nodes, x)
	}
	if u.bad {
		return nil, errRow
	}
	return r, nil
}

// detail is what nodes got, gave and printed, and the input of the run.
type detail struct {
	Value json.RawMessage `json:"value"`
	Nodes []nodeDetail    `json:"nodes,omitempty"`
	Lines []Line          `json:"lines,omitempty"`
	Cut   bool            `json:"cut,omitempty"`
}

type nodeDetail struct {
	Number int             `json:"node"`
	In     json.RawMessage `json:"in,omitempty"`
	Out    json.RawMessage `json:"out,omitempty"`
}

// maxDetail is how large the row of what nodes got and gave may be; above, only the input is kept.
const maxDetail = 64 << 10

func raw(j JSON) json.RawMessage {
	if j == nil {
		return nil
	}
	return j.AppendJSON(nil)
}

// appendDetail writes the second row; all says whether every node's values are kept, else only the failing one's.
func appendDetail(r *Run, all bool) []byte {
	d := detail{Value: raw(r.Trigger.Value), Lines: r.Lines}
	if len(d.Value) == 0 {
		d.Value = []byte("null")
	}
	size := len(d.Value)
	for i := range r.Nodes {
		x := &r.Nodes[i]
		if x.Status == NodeSkipped || x.Status == NodeIdle || !all && x.Status != NodeFailed && x.Status != NodeHandled {
			continue
		}
		n := nodeDetail{Number: x.Number, In: raw(x.In), Out: raw(x.Out)}
		if size += len(n.In) + len(n.Out); size > maxDetail {
			d.Nodes, d.Lines, d.Cut = nil, nil, true
			break
		}
		d.Nodes = append(d.Nodes, n)
	}
	b, err := json.Marshal(d)
	if err != nil { // a value that does not write itself as JSON
		b, _ = json.Marshal(detail{Value: []byte("null"), Cut: true}) // constants
	}
	return b
}

func (r *Run) addDetail(b []byte) error {
	var d detail
	if err := json.Unmarshal(b, &d); err != nil {
		return errRow
	}
	r.Trigger.Value, r.Lines = Raw(d.Value), d.Lines
	for _, n := range d.Nodes {
		for i := range r.Nodes {
			if r.Nodes[i].Number == n.Number {
				r.Nodes[i].In, r.Nodes[i].Out = Raw(n.In), Raw(n.Out)
			}
		}
	}
	return nil
}
