package uns

import (
	"sync"
	"sync/atomic"

	"millrace/historian"
)

// seriesBlock is how many topics of the index share one piece of memory.
const seriesBlock = 4096

// seriesIndex leads from the id of a series to its topic. Ids are given out in order, so it is a list of blocks. Readers take no lock.
type seriesIndex struct {
	grow   sync.Mutex
	blocks atomic.Pointer[[]*[seriesBlock]atomic.Pointer[Topic]]
}

func (x *seriesIndex) get(id historian.Series) *Topic {
	blocks := x.blocks.Load()
	if n := int(id / seriesBlock); blocks != nil && n < len(*blocks) {
		return (*blocks)[n][id%seriesBlock].Load()
	}
	return nil
}

func (x *seriesIndex) set(id historian.Series, t *Topic) {
	x.grow.Lock()
	defer x.grow.Unlock()
	var blocks []*[seriesBlock]atomic.Pointer[Topic]
	if b := x.blocks.Load(); b != nil {
		blocks = *b
	}
	if n := int(id / seriesBlock); n >= len(blocks) {
		more := append(make([]*[seriesBlock]atomic.Pointer[Topic], 0, n+1), blocks...)
		for len(more) <= n {
			more = append(more, new([seriesBlock]atomic.Pointer[Topic]))
		}
		blocks = more
		x.blocks.Store(&blocks)
	}
	blocks[id/seriesBlock][id%seriesBlock].Store(t)
}

// BySeries is the topic of a series, nil if it has none: unknown, deleted, or of a workspace that is not configured. Every sample
// that can be read has its topic here, unless that was deleted meanwhile. No allocation.
func (c *Catalog) BySeries(id historian.Series) *Topic { return c.series.get(id) }
