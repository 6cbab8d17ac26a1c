#!/usr/bin/env node
// Runs the program mcpwire for this system, which an optional dependency contains. The program
// gets the standard streams themselves; no byte passes through this process.
"use strict";

const { spawn } = require("node:child_process");

const name = `@mcpwire/${process.platform}-${process.arch}`;
const file = process.platform === "win32" ? "mcpwire.exe" : "mcpwire";

let program;
try {
	program = require.resolve(`${name}/bin/${file}`);
} catch {
	console.error(`error: the package ${name} is not installed`);
	console.error("hint: install mcpwire with optional dependencies, or build it from source for this system");
	process.exit(1);
}

const child = spawn(program, process.argv.slice(2), { stdio: "inherit", windowsHide: true });

// A signal from the terminal reaches the program too; one for this process alone does not.
const forwarded = process.platform === "win32" ? ["SIGINT"] : ["SIGINT", "SIGTERM", "SIGHUP", "SIGUSR2"];
for (const signal of forwarded) {
	process.on(signal, () => {
		if (signal !== "SIGINT" || !process.stdin.isTTY) child.kill(signal);
	});
}

child.on("error", (err) => {
	console.error(`error: cannot start ${program}: ${err.message}`);
	process.exit(1);
});
child.on("exit", (code, signal) => {
	if (signal === null) process.exit(code);
	for (const s of forwarded) process.removeAllListeners(s);
	process.kill(process.pid, signal);
});
