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

// What the first octet of a packed node says beside its status.
const (
	nodeStatus   = 0x0f
	nodeFault    = 0x10 // its error follows, with the place
	nodeAttempts = 0x20 // how often it was tried follows
)

// maxRowValue is how long the trigger's value may be to stand in the row; a longer one stands with the details, where those
// are kept.
const maxRowValue = 256

// appendRow packs a run without what its nodes got and gave, and without what is in its key.
func appendRow(dst []byte, r *Run) []byte {
	dst = append(dst, rowVersion, byte(r.Status)|modeNumber(r.Mode)<<2|r.Detail<<5, r.Trigger.Scale, r.Trigger.Quality)
	dst = binary.AppendUvarint(dst, uint64(r.Version))
	dst = binary.AppendUvarint(dst, uint64(r.Duration.Microseconds()))
	dst = binary.AppendUvarint(dst, uint64(r.Attempt))
	dst = binary.AppendUvarint(dst, uint64(r.Counted))
	if r.Counted > 1 {
		dst = binary.AppendUvarint(dst, uint64(r.Sum.Microseconds()))
		dst = binary.AppendUvarint(dst, uint64(r.Longest.Microseconds()))
	}
	dst = binary.AppendVarint(dst, r.Trigger.Time-micros(r.Started)*1000)
	dst = binary.AppendUvarint(dst, uint64(r.Trigger.Node))
	dst = appendText(dst, r.Trigger.Workspace)
	dst = appendText(dst, r.Trigger.Topic)
	var value []byte
	if r.Trigger.Value != nil {
		if value = r.Trigger.Value.AppendJSON(nil); len(value) > maxRowValue {
			value = nil
		}
	}
	dst = append(binary.AppendUvarint(dst, uint64(len(value))), value...)
	dst = appendText(dst, r.Error)
	dst = binary.AppendVarint(dst, int64(r.Node))
	n := 0
	if r.Detail != Minimal {
		for i := range r.Nodes {
			if r.Nodes[i].reached() {
				n++
			}
		}
	}
	dst = binary.AppendUvarint(dst, uint64(n))
	for i := range r.Nodes {
		if n > 0 && r.Nodes[i].reached() {
			dst = appendNode(dst, &r.Nodes[i])
		}
	}
	return dst
}

func (x *NodeRun) reached() bool { return x.Status != NodeSkipped && x.Status != NodeIdle }

func appendNode(dst []byte, x *NodeRun) []byte {
	head := x.Status & nodeStatus
	if x.Error != "" {
		head |= nodeFault
	}
	if x.Attempts > 1 {
		head |= nodeAttempts
	}
	dst = append(dst, head)
	dst = binary.AppendUvarint(dst, uint64(x.Number))
	dst = binary.AppendUvarint(dst, uint64(max(x.From, 0).Microseconds()))
	dst = binary.AppendUvarint(dst, uint64(max(x.Duration, 0).Microseconds()))
	if x.Error != "" {
		dst = appendText(dst, x.Error)
		dst = binary.AppendUvarint(dst, uint64(x.Line))
		dst = binary.AppendUvarint(dst, uint64(x.Column))
	}
	if x.Attempts > 1 {
		dst = binary.AppendUvarint(dst, uint64(x.Attempts))
	}
	return dst
}

// micros is a time in microseconds, 0 for none.
func micros(t time.Time) int64 {
	if t.IsZero() {
		return 0
	}
	return t.UnixMicro()
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

func (u *unpacker) micros() time.Duration {
	return time.Duration(u.uvarint()) * time.Microsecond
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

// readRow unpacks a row whose key says id and started.
func readRow(id RunID, started time.Time, b []byte) (*Run, error) {
	u := &unpacker{b: b}
	if u.octet() != rowVersion {
		return nil, errRow
	}
	r := &Run{ID: id, Started: started}
	head := u.octet()
	r.Status, r.Detail = Status(head&3), head>>5
	if m := int(head >> 2 & 7); m < len(modes) {
		r.Mode = modes[m]
	}
	r.Replay = r.Mode == "replay"
	r.Trigger.Scale, r.Trigger.Quality = u.octet(), u.octet()
	r.Version = uint32(u.uvarint())
	r.Duration = u.micros()
	r.Attempt = int(u.uvarint())
	r.Counted = uint32(u.uvarint())
	r.Sum, r.Longest = r.Duration, r.Duration
	if r.Counted > 1 {
		r.Sum, r.Longest = u.micros(), u.micros()
	}
	r.Trigger.Time = u.varint() + micros(started)*1000
	r.Trigger.Node = uint16(u.uvarint())
	r.Trigger.Workspace, r.Trigger.Topic = u.text(), u.text()
	if value := u.text(); value != "" {
		r.Trigger.Value = Raw(value)
	}
	r.Error = u.text()
	r.Node = int(u.varint())
	n := u.uvarint()
	for i := uint64(0); i < n && !u.bad; i++ {
		head := u.octet()
		x := NodeRun{Status: head & nodeStatus, Number: int(u.uvarint()), From: u.micros(), Duration: u.micros()}
		if head&nodeFault != 0 {
			x.Error, x.Line, x.Column = u.text(), int(u.uvarint()), int(u.uvarint())
		}
		if head&nodeAttempts != 0 {
			x.Attempts = int(u.uvarint())
		}
		r.Nodes = append(r.Nodes, x)
	}
	if u.bad || len(u.b) > 0 {
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
		if !x.reached() || !all && x.Status != NodeFailed && x.Status != NodeHandled {
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
	r.Trigger.Value, r.Lines, r.Cut = Raw(d.Value), d.Lines, d.Cut
	for _, n := range d.Nodes {
		for i := range r.Nodes {
			if r.Nodes[i].Number == n.Number {
				if n.In != nil {
					r.Nodes[i].In = Raw(n.In)
				}
				if n.Out != nil {
					r.Nodes[i].Out = Raw(n.Out)
				}
			}
		}
	}
	return nil
}
