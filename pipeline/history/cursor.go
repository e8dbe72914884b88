package history

import (
	"encoding/binary"
	"fmt"
	"slices"

	"millrace/historian/kv"
)

// A row of marks holds those of one SaveCursor, so that a run that takes long costs a row a second and not one for every
// run that ends meanwhile.
const marksVersion = 1

// markRow is a row of marks on disk.
type markRow struct {
	key  string
	last uint64 // its highest sequence: below the cursor, the row goes
}

func appendMarks(dst []byte, list []Mark) []byte {
	dst = append(dst, marksVersion)
	dst = binary.AppendUvarint(dst, uint64(len(list)))
	var seq uint64
	for _, m := range list {
		dst = binary.AppendUvarint(dst, m.Seq-seq)
		dst = binary.AppendUvarint(dst, uint64(m.Pipeline))
		dst = binary.AppendUvarint(dst, uint64(m.Node))
		seq = m.Seq
	}
	return dst
}

func readMarks(b []byte) ([]Mark, error) {
	u := &unpacker{b: b}
	if u.octet() != marksVersion {
		return nil, errRow
	}
	n := u.uvarint()
	if n > uint64(len(u.b))/3 {
		return nil, errRow
	}
	list := make([]Mark, n)
	var seq uint64
	for i := range list {
		seq += u.uvarint()
		list[i] = Mark{Seq: seq, Pipeline: uint32(u.uvarint()), Node: uint16(u.uvarint())}
	}
	if u.bad || len(u.b) > 0 {
		return nil, errRow
	}
	return list, nil
}

// openMarks lists the rows of marks.
func (s *Store) openMarks() error {
	return s.records.Scan([]byte{markPrefix}, func(key, _ []byte) bool {
		if len(key) == 13 {
			s.marks = append(s.marks, markRow{string(key), binary.BigEndian.Uint64(key[1:])})
			s.serial = max(s.serial, binary.BigEndian.Uint32(key[9:])+1)
		}
		return true
	})
}

// LoadCursor is what SaveCursor wrote last: the cursor, 0 for never, and the marks at or above it.
func (s *Store) LoadCursor() (cursor uint64, marks []Mark, err error) {
	s.curMu.Lock()
	defer s.curMu.Unlock()
	b, ok, err := s.records.Get([]byte(cursorKey))
	if err == nil && ok && len(b) != 8 {
		err = errRow
	}
	if err != nil {
		return 0, nil, fmt.Errorf("history: load the cursor: %w", err)
	}
	if ok {
		cursor = binary.BigEndian.Uint64(b)
	}
	s.cursor, s.saved = cursor, ok
	var fault error
	err = s.records.Scan([]byte{markPrefix}, func(_, value []byte) bool {
		list, err := readMarks(value)
		if err != nil {
			fault = err
			return false
		}
		for _, m := range list {
			if m.Seq >= cursor {
				marks = append(marks, m)
			}
		}
		return true
	})
	if err == nil {
		err = fault
	}
	if err != nil {
		return 0, nil, fmt.Errorf("history: load the marks of finished runs: %w", err)
	}
	return cursor, marks, nil
}

// SaveCursor writes the cursor and adds marks; those below it go. Durable when it returns. With nothing new it writes
// nothing. It takes add over.
func (s *Store) SaveCursor(cursor uint64, add []Mark) error {
	s.curMu.Lock()
	defer s.curMu.Unlock()
	add = slices.DeleteFunc(add, func(m Mark) bool { return m.Seq < cursor })
	if s.saved && cursor == s.cursor && len(add) == 0 {
		return nil
	}
	ops := []kv.Op{{Key: []byte(cursorKey), Value: binary.BigEndian.AppendUint64(nil, cursor)}}
	kept := make([]markRow, 0, len(s.marks)+1)
	for _, row := range s.marks {
		if row.last < cursor {
			ops = append(ops, kv.Op{Key: []byte(row.key)})
		} else {
			kept = append(kept, row)
		}
	}
	if len(add) > 0 {
		slices.SortFunc(add, func(a, b Mark) int {
			switch {
			case a.Seq < b.Seq:
				return -1
			case a.Seq > b.Seq:
				return 1
			}
			return 0
		})
		last := add[len(add)-1].Seq
		key := binary.BigEndian.AppendUint32(binary.BigEndian.AppendUint64([]byte{markPrefix}, last), s.serial)
		ops = append(ops, kv.Op{Key: key, Value: appendMarks(nil, add)})
		kept = append(kept, markRow{string(key), last})
	}
	if err := s.records.Apply(ops...); err != nil {
		return fmt.Errorf("history: save the cursor: %w", err)
	}
	s.marks, s.cursor, s.saved = kept, cursor, true
	s.serial++
	return nil
}
