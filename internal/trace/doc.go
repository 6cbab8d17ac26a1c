// Package wireview is the model of traffic that everything shows which shows traffic: lists in the terminal, statistics, the live views. It is built event by event from
// captures (package capture), while they grow or afterwards, and several may come in one timeline (capture.Merge).
//
// A [Row] is a line of the timeline. Most are requests, with their response or whatever else became of them; inside them stand the things that happened because of them:
// progress, log messages, what the server asked meanwhile, the further rounds of a request that needed input
// (https://modelcontextprotocol.io/specification/2026-07-28/basic/patterns/mrtr), polls of the task that it became, and the facts of HTTP. Output of the process, its start
// and end, and gaps in the capture are rows of the same timeline.
//
// Nothing of that is in a capture: it is worked out here, and a peer that breaks the rules can make it wrong, but not more.
//
// # Memory
//
// Payloads are not kept, only the numbers of their events and short excerpts. The oldest rows make room above [Options.MaxRows], and what a row has inside is limited;
// counts of what is gone stay. Everything is bounded, whatever the events say.
//
// # Concurrency
//
// A [Model], and the rows, sessions and statistics that it returns, are for one goroutine at a time, or for several behind a lock.
//
// # Errors
//
// There are none. Events that cannot be understood are rows that say so.
package trace
