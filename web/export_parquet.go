package web

import (
	"io"

	"millrace/historian"

	"github.com/parquet-go/parquet-go"
)

// exportRow is a row of a Parquet export. Value is the value as JSON, digit for digit; Number is the float64 nearest
// to a number, 0 or 1 for a boolean, and null for all else.
type exportRow struct {
	Topic     string   `parquet:"topic,dict"`
	Timestamp int64    `parquet:"timestamp,timestamp(nanosecond),delta"`
	Value     string   `parquet:"value"`
	Number    *float64 `parquet:"number,optional"`
	Quality   string   `parquet:"quality,dict"`
}

const (
	// parquetGroup is how many rows a row group has: it is held in memory until it is written.
	parquetGroup = 100_000
	parquetBatch = 1024
)

type parquetExport struct {
	w       *parquet.GenericWriter[exportRow]
	path    string
	rowRoom []exportRow
	numbers []float64
	text    []byte
}

func newParquetExport(out io.Writer) *parquetExport {
	return &parquetExport{w: parquet.NewGenericWriter[exportRow](out,
		parquet.Compression(&parquet.Zstd), parquet.MaxRowsPerRowGroup(parquetGroup), parquet.CreatedBy("millrace", "", ""))}
}

func (*parquetExport) contentType() string { return "application/vnd.apache.parquet" }

func (p *parquetExport) topic(path string) { p.path = path }

func (p *parquetExport) rows(samples []historian.Sample) error {
	for len(samples) > 0 {
		n := min(len(samples), parquetBatch)
		p.rowRoom, p.numbers = p.rowRoom[:0], append(p.numbers[:0], make([]float64, n)...)
		for i := range samples[:n] {
			s := &samples[i]
			p.text = s.Value.AppendJSON(p.text[:0])
			row := exportRow{Topic: p.path, Timestamp: s.Time, Value: string(p.text), Quality: s.Quality.String()}
			if f, ok := s.Value.Float(); ok {
				p.numbers[i] = f
				row.Number = &p.numbers[i]
			}
			p.rowRoom = append(p.rowRoom, row)
		}
		if _, err := p.w.Write(p.rowRoom); err != nil {
			return err
		}
		samples = samples[n:]
	}
	return nil
}

func (p *parquetExport) end() error { return p.w.Close() }
