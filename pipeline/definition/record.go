package definition

import (
	"encoding/binary"
	"encoding/json"
	"fmt"
	"time"
)

// The rows of a shelf, in the store of small records. Numbers are big-endian, so that rows sort by them.
const (
	rowNext     = "pipeline/next"      // the next number, 4
	rowPipeline = "pipeline/pipeline/" // number4 -> record, JSON
	rowDraft    = "pipeline/draft/"    // number4 -> the draft, JSON
	rowVersion  = "pipeline/version/"  // number4 version4 -> versionRecord, JSON
	rowHold     = "pipeline/hold/"     // number4 seq8 -> version4, 0 = nothing: what holds from a sequence on
)

func numberKey(row string, number uint32) []byte {
	return binary.BigEndian.AppendUint32([]byte(row), number)
}

func versionKey(number, version uint32) []byte {
	return binary.BigEndian.AppendUint32(numberKey(rowVersion, number), version)
}

func holdKey(number uint32, seq uint64) []byte {
	return binary.BigEndian.AppendUint64(numberKey(rowHold, number), seq)
}

// record is what is kept in memory of a pipeline as well.
type record struct {
	ID          string            `json:"id"`
	Workspace   string            `json:"workspace"`
	Name        string            `json:"name"`
	Description string            `json:"description,omitempty"`
	Labels      map[string]string `json:"labels,omitempty"`
	// Draft counts the changes of the draft: it is the ETag.
	Draft    uint64 `json:"draft"`
	Latest   uint32 `json:"latest"`             // the newest version; 0 = none
	Deployed uint32 `json:"deployed,omitempty"` // the version that runs, or would when started
	Running  bool   `json:"running,omitempty"`
	// Changed says that the draft is not what is deployed.
	Changed bool      `json:"changed,omitempty"`
	Created time.Time `json:"created"`
	By      string    `json:"by,omitempty"`
	Updated time.Time `json:"updated"`
	// Holds are the sequences from which versions hold, newest last; at most maxHolds.
	Holds []hold `json:"-"`
}

// hold is a version that is matched from a sequence on; version 0 is none.
type hold struct {
	seq     uint64
	version uint32
}

// maxHolds is how many changes of one pipeline are remembered: enough for what the follower may lag behind.
const maxHolds = 64

type versionRecord struct {
	Comment    string          `json:"comment,omitempty"`
	By         string          `json:"by,omitempty"`
	Created    time.Time       `json:"created"`
	Definition json.RawMessage `json:"definition"`
}

// encode cannot fail: records hold texts, numbers and times.
func encode(v any) []byte {
	b, err := json.Marshal(v)
	if err != nil {
		panic(fmt.Sprintf("definition: encode %T: %v", v, err))
	}
	return b
}
