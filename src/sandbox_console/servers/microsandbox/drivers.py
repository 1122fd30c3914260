"""The programs that run inside a sandbox as interpreters, in Python and JavaScript."""

from __future__ import annotations

PYTHON = r"""
import ast, json, os, sys, tempfile, traceback
LIMIT = 1 << 20
answers = os.fdopen(os.dup(1), "w")
pieces = os.fdopen(os.dup(0))
null = os.open(os.devnull, os.O_RDWR)
os.dup2(null, 0)
scope = {"__name__": "__main__"}

def run(code):
    try:
        for node in ast.parse(code, "<stdin>").body:
            exec(compile(ast.Interactive([node]), "<stdin>", "single"), scope)
        return "success"
    except SystemExit as error:
        return "success" if error.code in (None, 0) else "error"
    except BaseException:
        traceback.print_exc()
        return "error"

def lines(file, stream):
    file.seek(0)
    text = file.read(LIMIT).decode("utf-8", "replace")
    found = text.split("\n")
    return [{"stream": stream, "text": line} for line in (found if found[-1] else found[:-1])]

for piece in pieces:
    with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err:
        os.dup2(out.fileno(), 1)
        os.dup2(err.fileno(), 2)
        status = run(json.loads(piece))
        sys.stdout.flush()
        sys.stderr.flush()
        os.dup2(null, 1)
        os.dup2(null, 2)
        answers.write(json.dumps({"status": status, "output": lines(out, "stdout") + lines(err, "stderr")}) + "\n")
        answers.flush()
"""
"""Each statement is compiled as typed into the prompt, so that the value of an expression is shown."""

JAVASCRIPT = r"""
const vm = require("vm"), util = require("util"), readline = require("readline");
const LIMIT = 1 << 20;
let output = [], size = 0;
const take = (stream) => (...words) => {
  for (const text of util.format(...words).split("\n")) {
    size += text.length;
    if (size <= LIMIT) output.push({ stream, text });
  }
};
const out = take("stdout"), err = take("stderr");
const shown = { log: out, info: out, debug: out, dir: out, table: out, warn: err, error: err, trace: err };
const scope = vm.createContext({ console: shown, require, process, Buffer, URL, setTimeout, clearTimeout,
  setInterval, clearInterval, setImmediate, TextEncoder, TextDecoder, fetch: globalThis.fetch });
scope.globalThis = scope.global = scope;
const fail = (error) => err(error && error.stack ? error.stack : String(error));
process.on("uncaughtException", fail);
process.on("unhandledRejection", fail);
(async () => {
  for await (const piece of readline.createInterface({ input: process.stdin })) {
    output = []; size = 0;
    let status = "success";
    try {
      const value = await vm.runInContext(JSON.parse(piece), scope, { filename: "<stdin>" });
      if (value !== undefined) out(util.inspect(value));
    } catch (error) { fail(error); status = "error"; }
    process.stdout.write(JSON.stringify({ status, output }) + "\n");
  }
})();
"""
"""A promise is waited for. ``const`` and ``let`` of one piece are known in the next."""
