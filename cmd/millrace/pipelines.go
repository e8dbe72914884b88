package main

import (
	"context"
	"errors"
	"log/slog"
	"path/filepath"
	"sync"

	"millrace/historian"
	"millrace/historian/kv"
	"millrace/pipeline"
	"millrace/pipeline/definition"
	"millrace/pipeline/history"
	"millrace/pipeline/nodes"
	"millrace/pipeline/queue"
	"millrace/pipeline/script"
	"millrace/pipeline/trigger"
	"millrace/uns"
	"millrace/web"

	"github.com/prometheus/client_golang/prometheus"
)

// pipelines is everything that runs pipelines, wired.
type pipelines struct {
	log      *slog.Logger
	scripts  *script.Engine
	records  *kv.Store // of runs
	history  *history.Store
	compiler *definition.Compiler
	shelf    *definition.Shelf
	queue    *queue.JetStream
	engine   *pipeline.Engine
	follower *trigger.Follower
	wired    chan struct{} // closed when engine is set
}

// openPipelines opens the parts in the order in which a run passes them, backwards. Nothing runs before serve. On an error
// what was opened is there to be closed.
func openPipelines(c *Config, records *kv.Store, values *historian.Store, names *uns.Namespace, catalog *uns.Catalog, ingress *uns.Ingress, log *slog.Logger, reg prometheus.Registerer, fatal func(error)) (p *pipelines, err error) {
	p = &pipelines{log: log.With("part", "pipeline"), wired: make(chan struct{})}
	if p.records, err = kv.Open(filepath.Join(c.Data, "runs"), kv.Options{Log: log, Fatal: fatal, MemTable: history.MemTable}); err != nil {
		return p, err
	}
	if p.history, err = history.Open(p.records, history.Options{Retention: c.Pipeline.History.Retention, Log: log, Registry: reg}); err != nil {
		return p, err
	}
	p.scripts = script.NewEngine(script.Options{})
	p.compiler = definition.NewCompiler(nodes.All(nodes.Options{Reader: pipelineReader{names, catalog, values}}), p.scripts)
	if p.shelf, err = definition.OpenShelf(records, p.compiler, definition.ShelfOptions{
		Seq: func() uint64 { return p.follower.Seq() }, Settled: func() { p.follower.Settled() }}); err != nil {
		return p, err
	}
	defer close(p.wired)
	o := c.Pipeline
	o.Log, o.Registry = log, reg
	q := o.ExecutionQueue
	q.Log, q.Registry = p.log, reg
	q.Shed = func(list []queue.Entry) {
		<-p.wired // the engine has read how far it had come
		if p.engine != nil {
			p.engine.Shed(list)
		}
	}
	if p.queue, err = queue.Open(filepath.Join(c.Data, "queue"), q); err != nil {
		return p, err
	}
	p.engine, err = pipeline.Open(pipeline.Parts{Plans: p.shelf, Queue: p.queue, Ingress: ingress, Values: values, Paths: names, History: p.history, Parked: p.history,
		Records: records, Survivors: p.queue.Survivors(), Position: func() uint64 { return p.follower.Position() }}, o)
	if err != nil {
		return p, err
	}
	p.follower, err = trigger.New(trigger.Options{Log: values, Sink: p.engine, Topics: catalog, Namespace: names, Versions: p.shelf, From: p.engine.Cursor(), Skip: p.engine.Skip,
		Dead: func(d trigger.Dead) { p.engine.Loop(d.Ref, d.Topic) }, Shed: func(from, to uint64) { p.engine.LogShed(to - from + 1) }, Logger: log, Registry: reg})
	if err != nil {
		return p, err
	}
	p.shelf.Listen(func(c definition.Change) {
		p.follower.Change(c)
		p.engine.Running(p.shelf.Running())
	})
	return p, nil
}

// serve runs until ctx ends: the follower stops first, runs under way end, then their rows are written.
func (p *pipelines) serve(ctx context.Context) error {
	writing, stopWriting := context.WithCancel(context.WithoutCancel(ctx))
	defer stopWriting()
	var wg sync.WaitGroup
	var historyErr error
	wg.Go(func() { historyErr = p.history.Run(writing) })
	p.engine.Running(p.shelf.Running())
	following, stopFollowing := context.WithCancel(ctx)
	defer stopFollowing()
	running, stopRunning := context.WithCancel(context.WithoutCancel(ctx))
	defer stopRunning()
	var followErr error
	wg.Go(func() {
		defer stopRunning() // nothing is queued any more
		if err := p.follower.Run(following); ctx.Err() == nil && following.Err() == nil {
			followErr = err
		}
	})
	err := p.engine.Run(running)
	stopFollowing()
	stopWriting()
	wg.Wait()
	return errors.Join(err, followErr, historyErr)
}

// close closes what is open.
func (p *pipelines) close() error {
	var faults []error
	if p.queue != nil {
		faults = append(faults, p.queue.Close())
	}
	if p.scripts != nil {
		p.scripts.Close()
	}
	if p.records != nil {
		faults = append(faults, p.records.Close())
	}
	return errors.Join(faults...)
}

// parts is what REST shows and asks.
func (p *pipelines) parts() web.Pipelines {
	return web.Pipelines{Shelf: p.shelf, Compiler: p.compiler, Engine: p.engine, History: p.history}
}
