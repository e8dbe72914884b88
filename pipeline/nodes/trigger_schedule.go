package nodes

import (
	"time"
	_ "time/tzdata" // the box has zones even where its system has none

	"millrace/pipeline/node"
)

// scheduleTrigger starts runs at times.
func scheduleTrigger() node.Type {
	return node.Type{
		Spec: node.Spec{
			Type: "trigger.schedule", Title: "Schedule", Category: "trigger", Trigger: true,
			Doc: "Starts a run at planned times: every so long, counted from 1970 so that it does not depend on when the box was started, or by a cron expression. `$trigger.timestamp` is the planned time. Times that pass while the box is off are left out.",
			Fields: []node.Field{
				{Name: "every", Kind: node.DurationField, Title: "Every", Min: "1s", Max: "366d", Doc: "The interval."},
				{Name: "cron", Kind: node.TextField, Title: "Cron", Doc: "Five fields instead: minute, hour, day, month, weekday, for example `0 6,14,22 * * mon-fri`."},
				{Name: "timeZone", Kind: node.TextField, Title: "Time zone", Default: `"UTC"`, Doc: "On whose clock the cron expression is read, for example Europe/Berlin."},
			},
			Outputs: []node.Port{{Name: "out", Doc: "The planned time as `$trigger.timestamp`."}},
			Example: node.Example{Title: "At the beginning of each shift", Params: `{"cron":"0 6,14,22 * * *","timeZone":"Europe/Berlin"}`},
		},
		New: newScheduleTrigger,
	}
}

func newScheduleTrigger(c *node.Config) (node.Node, []node.Fault) {
	s := &node.Schedule{Every: durationOf(c.Params, "every"), Cron: c.Params.Get("cron").Text()}
	var faults []node.Fault
	if (s.Every > 0) == (s.Cron != "") {
		return nil, []node.Fault{faultOf("every", node.CodeMissing, "a schedule has either every or cron")}
	}
	var err error
	name := c.Params.Get("timeZone").Text()
	if s.Zone, err = time.LoadLocation(name); err != nil || name == "Local" {
		faults = append(faults, faultOf("timeZone", node.CodeOption, "there is no time zone %q: an IANA name such as Europe/Berlin is wanted", name))
		s.Zone = time.UTC
	}
	if _, err := node.NewPlanner(s); err != nil {
		faults = append(faults, faultOf("cron", node.CodeOption, "%v", err))
	}
	return &trigger{node.Start{Schedule: s}}, faults
}
