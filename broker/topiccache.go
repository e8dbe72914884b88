package broker

// topicCache finds a connection's topics by their bytes. A device publishes to few topics, again and again; what does
// not fit is parsed again.
type topicCache struct {
	entries map[string]*topicEntry
	size    int // bytes of topics
}

const (
	maxCachedTopics     = 4096
	maxCachedTopicBytes = 1 << 20
	maxCachedTopic      = 2048 // a longer topic is not worth its memory: no value can have one
)

func (t *topicCache) get(topic []byte) *topicEntry { return t.entries[string(topic)] }

// put makes room by forgetting arbitrary entries, and says how many.
func (t *topicCache) put(e *topicEntry) (forgotten uint64) {
	if len(e.topic) > maxCachedTopic {
		return 0
	}
	if t.entries == nil {
		t.entries = map[string]*topicEntry{}
	}
	for len(t.entries) >= maxCachedTopics || t.size+len(e.topic) > maxCachedTopicBytes {
		for k := range t.entries {
			delete(t.entries, k)
			t.size -= len(k)
			forgotten++
			break
		}
	}
	t.entries[e.topic] = e
	t.size += len(e.topic)
	return forgotten
}
