package uns

import (
	"fmt"
	"strings"
	"unicode/utf8"
)

// The limits of a path, contract section 3.
const (
	maxPathBytes  = 1024
	maxPathLevels = 32
)

// pathFault checks the rules of contract 3 for a path below a workspace, except for the reserved first level, and says
// what is wrong and where; "" means that the path is good.
func pathFault(path string) string {
	if path == "" {
		return "the path is empty: at least one level must follow the workspace"
	}
	if len(path) > maxPathBytes {
		return fmt.Sprintf("the path has %d bytes, at most %d are allowed", len(path), maxPathBytes)
	}
	level, start := 1, 0
	for i := 0; i < len(path); {
		c := path[i]
		if c < utf8.RuneSelf {
			switch {
			case c == '/':
				if i == start {
					return emptyLevel(level, i)
				}
				level++
				start = i + 1
			case c == '+' || c == '#':
				return fmt.Sprintf("wildcard %q at byte %d of the path: a value goes to one topic", c, i)
			case c < 0x20 || c == 0x7f:
				return fmt.Sprintf("control character 0x%02X at byte %d of the path", c, i)
			}
			i++
			continue
		}
		r, n := utf8.DecodeRuneInString(path[i:])
		if r == utf8.RuneError && n == 1 {
			return fmt.Sprintf("byte %d of the path (0x%02X) is not UTF-8", i, c)
		}
		if r < 0xA0 {
			return fmt.Sprintf("control character U+%04X at byte %d of the path", r, i)
		}
		i += n
	}
	if start == len(path) {
		return emptyLevel(level, len(path))
	}
	if level > maxPathLevels {
		return fmt.Sprintf("the path has %d levels, at most %d are allowed", level, maxPathLevels)
	}
	return ""
}

func emptyLevel(level, at int) string {
	return fmt.Sprintf("level %d of the path is empty (byte %d): leading, trailing and double slashes are not allowed", level, at)
}

// reserved tells whether a first level belongs to the box.
func reserved(level string) bool {
	return level != "" && (level[0] == '_' || level[0] == '$')
}

func reservedFault(level string) string {
	return fmt.Sprintf("level 1 of the path, %s, is reserved: first levels starting with _ or $ belong to the box", clip([]byte(level)))
}

// cutLevel splits off the first level. rest is "" and more false when there is no slash.
func cutLevel(s string) (level, rest string, more bool) {
	return strings.Cut(s, "/")
}
