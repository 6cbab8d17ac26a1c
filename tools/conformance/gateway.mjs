// Writes the configuration of a gateway in front of one server, whose tools and prompts keep their
// names. The lists of the server, as mcpwire list --json prints them, one in a line, come by
// standard input; the arguments are the server's era and its URL.
import fs from 'node:fs';

const [era, url] = process.argv.slice(2);
const lists = fs.readFileSync(0, 'utf8').trim().split('\n').map(line => JSON.parse(line));
const names = lists.flatMap(list => [...(list.tools ?? []), ...(list.prompts ?? [])]).map(item => item.name);
const rename = Object.fromEntries(names.map(name => [name, name]));
// JSON is YAML.
console.log(JSON.stringify({ listen: '127.0.0.1:0', upstreams: { server: { url, era, rename } } }));
