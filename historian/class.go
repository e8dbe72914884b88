package historian

import (
	"fmt"
	"time"
)

const day = 24 * time.Hour

// classes gives the word and the length of each retention class, by its key byte.
var classes = [...]struct {
	word string
	keep time.Duration
}{
	Class1d:      {"1d", day},
	Class7d:      {"7d", 7 * day},
	Class14d:     {"14d", 14 * day},
	Class32d:     {"32d", 32 * day},
	Class90d:     {"90d", 90 * day},
	Class366d:    {"366d", 366 * day},
	Class1830d:   {"1830d", 1830 * day},
	ClassForever: {"forever", 0},
}

const classCount = len(classes)

// ParseClass reads a retention class as the configuration and the API write it: 1d 7d 14d 32d 90d 366d 1830d
// forever.
func ParseClass(s string) (Class, bool) {
	for i, c := range classes {
		if c.word == s {
			return Class(i), true
		}
	}
	return 0, false
}

// String is the word that ParseClass reads.
func (c Class) String() string {
	if int(c) < classCount {
		return classes[c].word
	}
	return fmt.Sprintf("class(%d)", uint8(c))
}

// Duration is how long values of the class are kept; 0 is forever.
func (c Class) Duration() time.Duration {
	if int(c) < classCount {
		return classes[c].keep
	}
	return 0
}
