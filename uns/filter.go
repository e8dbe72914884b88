package uns

import (
	"strings"
	"unicode/utf8"
)

// maxTopicBytes is the longest MQTT string [MQTT-1.5.4].
const maxTopicBytes = 65535

// ValidFilter tells whether f is a topic filter: + stands alone in its level, # alone in the last one, at least one
// character, no U+0000, UTF-8 [MQTT-4.7.1-1, MQTT-4.7.1-2, MQTT-4.7.3-1, MQTT-4.7.3-2].
func ValidFilter(f string) bool {
	if f == "" || len(f) > maxTopicBytes || strings.IndexByte(f, 0) >= 0 || !utf8.ValidString(f) {
		return false
	}
	for more := true; more; {
		var level string
		level, f, more = cutLevel(f)
		if strings.IndexByte(level, '#') >= 0 && (level != "#" || more) {
			return false
		}
		if strings.IndexByte(level, '+') >= 0 && level != "+" {
			return false
		}
	}
	return true
}

// ValidTopicName tells whether t may be published to: no wildcard, at least one character, no U+0000, UTF-8
// [MQTT-3.3.2-2, MQTT-4.7.1-1].
func ValidTopicName(t []byte) bool {
	if len(t) == 0 || len(t) > maxTopicBytes {
		return false
	}
	ascii := true
	for _, c := range t {
		if c == 0 || c == '+' || c == '#' {
			return false
		}
		ascii = ascii && c < utf8.RuneSelf
	}
	return ascii || utf8.Valid(t)
}

// Match tells whether a valid filter matches a topic name: # also matches its parent, a leading wildcard never a topic
// that starts with $ [MQTT-4.7.1-2, MQTT-4.7.2-1]. No allocation.
func Match(filter, topic string) bool {
	if topic == "" || filter == "" {
		return false
	}
	if topic[0] == '$' && (filter[0] == '+' || filter[0] == '#') {
		return false
	}
	for {
		want, filterRest, moreFilter := cutLevel(filter)
		if want == "#" {
			return true
		}
		level, topicRest, moreTopic := cutLevel(topic)
		if want != "+" && want != level {
			return false
		}
		if !moreTopic {
			return !moreFilter || filterRest == "#"
		}
		if !moreFilter {
			return false
		}
		filter, topic = filterRest, topicRest
	}
}
