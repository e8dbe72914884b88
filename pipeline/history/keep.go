package history

import (
	"encoding/binary"
	"encoding/json"
	"fmt"
	"time"

	"millrace/historian/kv"
)

// Park writes rows of runs, over those that are there; durable when it returns.
func (s *Store) Park(rows []Parked) error {
	ops := make([]kv.Op, len(rows))
	for i, r := range rows {
		v := binary.BigEndian.AppendUint32(nil, r.Version)
		v = binary.BigEndian.AppendUint64(v, uint64(r.Due.UnixNano()))
		ops[i] = kv.Op{Key: appendID([]byte{parkPrefix}, r.ID), Value: append(v, r.State...)}
	}
	return s.records.Apply(ops...)
}

// Unpark deletes rows.
func (s *Store) Unpark(ids []RunID) error {
	ops := make([]kv.Op, len(ids))
	for i, id := range ids {
		ops[i] = kv.Op{Key: appendID([]byte{parkPrefix}, id)}
	}
	return s.records.Apply(ops...)
}

// ParkedRows lists the rows of parked runs.
func (s *Store) ParkedRows() (list []Parked, err error) {
	err = s.records.Scan([]byte{parkPrefix}, func(key, value []byte) bool {
		if id, ok := readID(key[1:]); ok && len(value) >= 12 {
			list = append(list, Parked{ID: id, Version: binary.BigEndian.Uint32(value), Due: time.Unix(0, int64(binary.BigEndian.Uint64(value[4:]))),
				State: append([]byte(nil), value[12:]...)})
		}
		return true
	})
	return list, err
}

// Bury keeps a dead letter; durable when it returns.
func (s *Store) Bury(d Dead) error {
	v, err := json.Marshal(d)
	if err != nil {
		return fmt.Errorf("history: write a dead letter: %w", err)
	}
	return s.records.Apply(kv.Op{Key: appendID([]byte{deadPrefix}, d.ID), Value: v})
}

// Dead lists dead letters, of one pipeline or of all (0).
func (s *Store) Dead(pipeline uint32, limit int) (list []Dead, err error) {
	err = s.records.Scan([]byte{deadPrefix}, func(key, value []byte) bool {
		id, ok := readID(key[1:])
		if !ok || pipeline != 0 && id.Pipeline != pipeline {
			return true
		}
		var d Dead
		if json.Unmarshal(value, &d) == nil {
			d.ID = id
			list = append(list, d)
		}
		return len(list) < limit
	})
	return list, err
}

// Exhume deletes a dead letter.
func (s *Store) Exhume(id RunID) error {
	return s.records.Apply(kv.Op{Key: appendID([]byte{deadPrefix}, id)})
}
