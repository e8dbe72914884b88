package historian

import (
	"errors"
	"fmt"

	"github.com/cockroachdb/pebble/v2/objstorage/objstorageprovider"
	"github.com/cockroachdb/pebble/v2/sstable"
	"github.com/cockroachdb/pebble/v2/vfs"
)

// buildDir is where tables lie before they are ingested; a start empties it.
const buildDir = "build"

// A chunk ends at this many samples or octets of text, so that a query for a minute decodes no whole hour.
const (
	chunkSamples = 4096
	chunkBytes   = 128 << 10
)

// sealWriter builds the tables of one checkpoint: one of head rows and the fence, and one of chunks per
// retention class. Keeping classes apart keeps each table clear of those of other checkpoints, so Pebble puts
// it on the lowest level and never rewrites it.
type sealWriter struct {
	s     *Store
	fence fence // spans grow as chunks are added

	heads  *table
	chunks [classCount]*table
	spans  [classCount]span

	samples []Sample
	key     []byte
	value   []byte
}

// table is a table being written.
type table struct {
	path string
	w    *sstable.Writer
}

func newSealWriter(s *Store, f fence) *sealWriter {
	return &sealWriter{s: s, fence: f}
}

func (w *sealWriter) create(name string, level int) (*table, error) {
	return w.s.createTable(fmt.Sprintf("%08d-%s", w.fence.ckpt, name), level, false)
}

// tallyBlock is the size of a block of tallies: a chart of a month reads one value out of each of 720 hours, so what counts
// is what a look-up has to decode.
const tallyBlock = 1 << 10

// createTable begins a table that is to be ingested at a level.
func (s *Store) createTable(name string, level int, tallies bool) (*table, error) {
	fsys := s.o.FS
	dir := fsys.PathJoin(s.dir, buildDir)
	if err := fsys.MkdirAll(dir, 0o750); err != nil {
		return nil, err
	}
	t := &table{path: fsys.PathJoin(dir, name+".sst")}
	f, err := fsys.Create(t.path, vfs.WriteCategoryUnspecified)
	if err != nil {
		return nil, err
	}
	o := pebbleOptions(fsys, nil, s.report, s.roomAtOpen())
	o.EnsureDefaults()
	w := o.MakeWriterOptions(level, s.db.TableFormat())
	if tallies {
		w.BlockSize, w.IndexBlockSize, w.Compression = tallyBlock, 16<<10, sstable.SnappyCompression
	}
	t.w = sstable.NewWriter(objstorageprovider.NewFileWritable(f), w)
	return t, nil
}

// add writes the head row of a series and, unless its samples are few, its chunks. Series come in order of id.
func (w *sealWriter) add(id Series, class Class, set *sealing, few bool) (err error) {
	w.samples = set.samples.appendSamples(w.samples[:0])
	sortSamples(w.samples)
	if w.heads == nil {
		if w.heads, err = w.create("heads", 0); err != nil {
			return err
		}
	}
	row := headRow{stamp: set.stamp, scale: set.scale, hasLast: true, last: set.last}
	if few {
		row.carried = w.samples
	}
	w.key = appendHeadKey(w.key[:0], id)
	w.value = row.append(w.value[:0])
	if err := w.heads.w.Set(w.key, w.value); err != nil {
		return err
	}
	if few {
		return nil
	}
	return w.addChunks(id, class)
}

// addChunks writes w.samples, cut at hours and at the limits of a chunk.
func (w *sealWriter) addChunks(id Series, class Class) (err error) {
	if w.chunks[class] == nil {
		if w.chunks[class], err = w.create(class.String(), 6); err != nil {
			return err
		}
		w.spans[class] = span{class: class, ckpt: w.fence.ckpt, from: w.samples[0].Time, to: w.samples[0].Time}
	}
	sp := &w.spans[class]
	sp.from = min(sp.from, w.samples[0].Time)
	sp.to = max(sp.to, w.samples[len(w.samples)-1].Time)

	part, first := uint16(0), w.samples[0].Time
	for rest := w.samples; len(rest) > 0; {
		// The part tells chunks apart that begin at the same time.
		if rest[0].Time != first {
			part, first = 0, rest[0].Time
		}
		n := chunkEnd(rest)
		w.key = appendChunkPrefix(w.key[:0], spacePartial, class, w.fence.ckpt, id)
		w.key = appendChunkKey(w.key, rest[0].Time, part)
		w.value = encodeChunk(w.value[:0], rest[:n])
		if err := w.chunks[class].w.Set(w.key, w.value); err != nil {
			return err
		}
		part++
		rest = rest[n:]
	}
	return nil
}

// chunkEnd is how many of the samples make the next chunk.
func chunkEnd(samples []Sample) int {
	hour, bytes := hourOf(samples[0].Time), 0
	for i := range samples {
		bytes += len(samples[i].Value.Raw)
		if i > 0 && (i == chunkSamples || bytes > chunkBytes || hourOf(samples[i].Time) != hour) {
			return i
		}
	}
	return len(samples)
}

// finish ends the tables, fsynced, and gives their paths.
func (w *sealWriter) finish() (paths []string, err error) {
	for class, t := range w.chunks {
		if t == nil {
			continue
		}
		w.fence.spans = append(w.fence.spans, w.spans[class])
		if err := t.finish(); err != nil {
			return nil, err
		}
		paths = append(paths, t.path)
	}
	if w.heads == nil {
		// A line without samples before it: nothing but the fence moves.
		if w.heads, err = w.create("heads", 0); err != nil {
			return nil, err
		}
	}
	w.key = appendHeadKey(w.key[:0], fenceSeries)
	if err := w.heads.w.Set(w.key, w.fence.append(w.value[:0])); err != nil {
		return nil, err
	}
	if err := w.heads.finish(); err != nil {
		return nil, err
	}
	return append(paths, w.heads.path), nil
}

func (t *table) finish() error {
	w := t.w
	t.w = nil
	return w.Close()
}

// abandon removes what was written.
func (w *sealWriter) abandon() { w.s.abandonTables(append(w.chunks[:], w.heads)) }

// abandonTables removes tables that were not ingested.
func (s *Store) abandonTables(tables []*table) {
	for _, t := range tables {
		if t == nil {
			continue
		}
		if t.w != nil {
			// Closing an unfinished table can only fail to be of use.
			_ = t.w.Close()
		}
		if err := s.o.FS.Remove(t.path); err != nil {
			s.log.Warn("a table given up could not be removed; the next start does it", "path", t.path, "error", err)
		}
	}
}

// sweepBuild removes tables that a stop left before their ingestion.
func (s *Store) sweepBuild() error {
	fsys := s.o.FS
	dir := fsys.PathJoin(s.dir, buildDir)
	names, err := fsys.List(dir)
	if err != nil {
		return nil // there is no such directory before the first checkpoint
	}
	var faults []error
	for _, name := range names {
		if err := fsys.Remove(fsys.PathJoin(dir, name)); err != nil {
			faults = append(faults, fmt.Errorf("historian: remove a left-over table: %w", err))
		}
	}
	return errors.Join(faults...)
}
