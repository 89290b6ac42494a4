// Runs before every npm script, under any installed Node: plain JavaScript that old versions understand.
"use strict";

var needed = [24, 5];
var found = process.versions.node.split(".").map(Number);

if (found[0] < needed[0] || (found[0] === needed[0] && found[1] < needed[1])) {
  console.error(
    [
      `This needs Node ${needed.join(".")} or later, and runs under Node ${process.versions.node}.`,
      "",
      "`npm install` brings the right one with it, and npm scripts then use it. If you have run it and still read",
      "this, its install scripts were blocked. Either",
      "",
      "  npm rebuild            when npm was told to ignore scripts, or",
      "  npm install-scripts approve --all && npm rebuild",
      "",
      "or install Node 26 yourself (https://nodejs.org).",
    ].join("\n"),
  );
  process.exit(1);
}

try {
  require.resolve("fastify");
} catch (_missing) {
  console.error("The dependencies are not installed. Run `npm install` first.");
  process.exit(1);
}
