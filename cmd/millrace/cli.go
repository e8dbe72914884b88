package main

// globals are the flags of every command.
type globals struct {
	Data   string `help:"Folder with everything the box writes (else MILLRACE_DATA, else data of the configuration, else ./data)." placeholder:"DIR"`
	Config string `help:"Configuration file (default ./config.yaml if there is one)." placeholder:"FILE"`
	URL    string `name:"url" help:"Speak to the box at this address instead of its admin socket." placeholder:"URL"`
	Token  string `help:"Personal access token for --url." placeholder:"T"`
	JSON   bool   `name:"json" help:"Print one JSON document."`
}

// cli is the grammar.
type cli struct {
	globals
	Serve  serveCommand      `cmd:"" help:"Run the box."`
	Cfg    configCommand     `cmd:"" name:"config" help:"Check or print the configuration."`
	Client clientCommand     `cmd:"" help:"API clients: the identities devices sign in with."`
	Sess   sessionCommand    `cmd:"" name:"session" help:"MQTT sessions."`
	Topic  topicCommand      `cmd:"" help:"Topics of the Unified Namespace."`
	Hist   historyCommand    `cmd:"" name:"history" help:"Stored values."`
	Usr    userCommand       `cmd:"" name:"user" help:"People who sign in, and their roles."`
	Token_ tokenCommand      `cmd:"" name:"token" help:"Personal access tokens for --url."`
	Status statusCommand     `cmd:"" help:"How the box is; exit 1 unless it is ready."`
	Pipe   pipelineCommand   `cmd:"" name:"pipeline" help:"Pipelines: from stored values to derived ones."`
	Run_   runCommand        `cmd:"" name:"run" help:"What pipelines did."`
	Backup backupCommand     `cmd:"" help:"Back up a box while it runs, check a backup, restore one."`
	Key    keyCommand        `cmd:"" help:"Keys that seal secrets at rest and sign access tokens."`
	Audit  auditCommand      `cmd:"" help:"Who changed what, and who signed in."`
	Perf   perfCommand       `cmd:"" help:"Measure a box: load, latency, bytes, and what survives kill -9."`
	Ver    versionCommand    `cmd:"" name:"version" help:"Print the version."`
	Compl  completionCommand `cmd:"" name:"completion" help:"Print what makes a shell complete commands, flags and their words."`

	Complete completeCommand `cmd:"" name:"__complete" hidden:"" passthrough:""`
}
