package pipeline

import (
	"hash/fnv"
	"sync"
	"sync/atomic"

	"millrace/pipeline/definition"
)

// pipe is what the engine keeps of one pipeline while the process lives: the versions that still have runs, its runs,
// its mailboxes, what it has cost.
type pipe struct {
	number uint32
	id     string

	cpu    atomic.Int64 // ns
	counts [statuses]atomic.Uint64

	mu       sync.Mutex
	programs map[uint32]*program
	boxes    map[string]*mailbox
	live     map[*run]struct{}
	paused   bool
	backlog  ring[*run] // came while paused
}

// statuses is the number of statuses of runs.
const statuses = 4

func newPipe(number uint32, id string) *pipe {
	return &pipe{number: number, id: id} // the maps are made when the first run comes
}

// program is a version ready to run; nil when there is no such plan.
func (p *pipe) program(version uint32, plan func() *definition.Plan) *program {
	p.mu.Lock()
	defer p.mu.Unlock()
	if g := p.programs[version]; g != nil {
		return g
	}
	d := plan()
	if d == nil {
		return nil
	}
	g := newProgram(d, p)
	if len(p.programs) >= maxPrograms {
		clear(p.programs) // runs keep their own
	}
	if p.programs == nil {
		p.programs = make(map[uint32]*program)
	}
	p.programs[version] = g
	return g
}

// maxPrograms is how many versions of one pipeline are kept ready.
const maxPrograms = 8

// assign gives a run the mailbox of its key; an ordered pipeline has one, of the empty key. The mailbox stays until the run
// is in it.
func (p *pipe) assign(r *run, key string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	m := p.box(r.prog, key)
	m.reserve()
	r.box, r.lane = m, m.lane
}

func (p *pipe) box(g *program, key string) *mailbox {
	if m := p.boxes[key]; m != nil {
		return m
	}
	if p.boxes == nil {
		p.boxes = make(map[string]*mailbox)
	}
	if len(p.boxes) >= maxBoxes {
		for k, m := range p.boxes {
			if m.idle() {
				delete(p.boxes, k)
			}
		}
	}
	h := fnv.New32a()
	h.Write([]byte{byte(p.number), byte(p.number >> 8), byte(p.number >> 16), byte(p.number >> 24)})
	h.Write([]byte(key))
	m := &mailbox{lane: g.lane, hash: h.Sum32(), pipe: p, key: key}
	p.boxes[key] = m
	return m
}

// maxBoxes is how many mailboxes of keys a pipeline keeps before those with nothing in them go.
const maxBoxes = 10_000

// enter adds a run that was admitted; true when it has to wait because the pipeline is paused.
func (p *pipe) enter(r *run) (paused bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.add(r)
	if p.paused && r.mode != modeManual && r.mode != modeReplay {
		p.backlog.push(r)
		return true
	}
	return false
}

// leave takes a run out that has ended.
func (p *pipe) leave(r *run) {
	p.counts[r.status].Add(1)
	p.mu.Lock()
	delete(p.live, r)
	p.mu.Unlock()
}

// runs lists the runs that have not ended.
func (p *pipe) runs() []*run {
	p.mu.Lock()
	defer p.mu.Unlock()
	list := make([]*run, 0, len(p.live))
	for r := range p.live {
		list = append(list, r)
	}
	return list
}

// unpause gives the backlog out.
func (p *pipe) unpause() []*run {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.paused = false
	var list []*run
	for p.backlog.len() > 0 {
		list = append(list, p.backlog.pop())
	}
	return list
}

// track lists a run as one that has not ended.
func (p *pipe) track(r *run) {
	p.mu.Lock()
	p.add(r)
	p.mu.Unlock()
}

func (p *pipe) add(r *run) {
	if p.live == nil {
		p.live = make(map[*run]struct{})
	}
	p.live[r] = struct{}{}
}

func (p *pipe) isPaused() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.paused
}

// unused drops the programs of versions that have no run, but for the one that runs, and lists their versions.
func (p *pipe) unused(running uint32) (versions []uint32) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(p.programs) == 0 || len(p.programs) == 1 && p.programs[running] != nil {
		return nil
	}
	used := make(map[uint32]bool)
	for r := range p.live {
		used[r.prog.plan.Version] = true
	}
	for v := range p.programs {
		if v != running && !used[v] {
			delete(p.programs, v)
			versions = append(versions, v)
		}
	}
	return versions
}
