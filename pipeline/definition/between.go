package definition

import (
	"fmt"
	"strings"

	"millrace/pipeline/node"
	"millrace/uns"
)

// between warns where a pipeline and one that runs trigger each other by topics they always publish to.
func (s *Shelf) between(d *Definition) (faults []Fault) {
	mine, heard := s.c.ends(d)
	if len(mine) == 0 || len(heard) == 0 {
		return nil
	}
	for _, p := range s.List() {
		if !p.Running || p.ID == d.ID {
			continue
		}
		v, err := s.version(p.Number, p.Deployed)
		if err != nil {
			continue // its own trouble, told where it is started
		}
		theirs, listened := s.c.ends(&v.Definition)
		if there, back := hit(mine, listened), hit(theirs, heard); there != "" && back != "" {
			faults = append(faults, warn("", "nodes", codeLoop, fmt.Sprintf("this pipeline triggers %s with %s, which triggers this one with %s: at most 16 runs in a row", p.ID, there, back)))
		}
	}
	return faults
}

// ends are the topics a definition always publishes to, and the filters it listens to, as far as they are plain to see.
func (c *Compiler) ends(d *Definition) (topics, filters []string) {
	for i := range d.Nodes {
		t := c.types[d.Nodes[i].Type]
		if t == nil {
			continue
		}
		if t.Spec.Effect {
			topics = append(topics, targets(&t.Spec, d.Nodes[i].Params)...)
		}
		if !t.Spec.Trigger {
			continue
		}
		for _, f := range t.Spec.Fields {
			if list := d.Nodes[i].Params.Get(f.Name); f.Of != nil && f.Of.Kind == node.FilterField {
				for k := range list.Len() {
					filters = append(filters, list.Index(k).Text())
				}
			}
		}
	}
	return topics, filters
}

func hit(topics, filters []string) string {
	for _, topic := range topics {
		for _, filter := range filters {
			if !strings.Contains(filter, "{{") && uns.Match(filter, topic) {
				return topic
			}
		}
	}
	return ""
}
