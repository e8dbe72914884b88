package historian

import (
	"bytes"
	"context"
	"errors"
	"fmt"

	"github.com/cockroachdb/pebble/v2"
)

// HasRow says whether there is an opaque row with the key, committed.
func (s *Store) HasRow(key []byte) (bool, error) {
	if err := s.enter(); err != nil {
		return false, err
	}
	defer s.inUse.Done()
	_, closer, err := s.db.Get(append([]byte{spaceRow}, key...))
	if errors.Is(err, pebble.ErrNotFound) {
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("historian: look up a row: %w", err)
	}
	return true, closer.Close()
}

// DropRows deletes the opaque rows with from <= key < to in one stroke, durably like Append.
func (s *Store) DropRows(ctx context.Context, from, to []byte) error {
	if bytes.Compare(from, to) >= 0 {
		return nil
	}
	return s.Append(ctx, nil, []Row{{Key: from, To: to}})
}
