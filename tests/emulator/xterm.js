// The screens of xterm.js at the checkpoints of captures: a JSON list of captures in, a JSON list of screens out.
// A row is a list of runs [text, foreground, background, flags]. A colour is -1 (none), 0 to 255 of the palette, or an RGB
// number plus 2^24. The flags are the bits of ATTRIBUTES in screens.py, in that order.
const { Terminal } = require("@xterm/headless");
const { Unicode11Addon } = require("@xterm/addon-unicode11");

const color = (cell, at) =>
  cell[`is${at}Default`]() ? -1 : cell[`get${at}Color`]() + (cell[`is${at}RGB`]() ? 1 << 24 : 0);
const flags = (cell) =>
  [cell.isBold(), cell.isItalic(), cell.isDim(), cell.isInverse(), cell.isInvisible(), cell.isStrikethrough(),
   cell.isOverline(), cell.isUnderline()].reduce((sum, on, bit) => sum + (on ? 1 << bit : 0), 0);

function row(line, cols) {
  const runs = [];
  for (let x = 0; x < cols; x++) {
    const cell = line.getCell(x);
    if (cell.getWidth() === 0) continue; // covered by the wide one before it
    const look = [color(cell, "Fg"), color(cell, "Bg"), flags(cell)];
    const last = runs[runs.length - 1];
    if (last && look.every((value, at) => value === last[at + 1])) last[0] += cell.getChars() || " ";
    else runs.push([cell.getChars() || " ", ...look]);
  }
  return runs;
}

function screen(terminal) {
  const buffer = terminal.buffer.active;
  const rows = [];
  for (let y = 0; y < terminal.rows; y++) rows.push(row(buffer.getLine(buffer.baseY + y), terminal.cols));
  return { rows, cursor: [buffer.cursorX, buffer.cursorY], alternate: buffer.type === "alternate" };
}

async function screens({ cols, rows, steps }) {
  const terminal = new Terminal({ cols, rows, allowProposedApi: true, scrollback: 1000 });
  terminal.loadAddon(new Unicode11Addon());
  terminal.unicode.activeVersion = "11";
  const found = [];
  for (const [kind, ...rest] of steps) {
    if (kind === "out") await new Promise((done) => terminal.write(Buffer.from(rest[0], "latin1"), done));
    else if (kind === "size") terminal.resize(...rest);
    else found.push(screen(terminal));
  }
  terminal.dispose();
  return found;
}

let text = "";
process.stdin.setEncoding("utf8").on("data", (part) => (text += part));
process.stdin.on("end", async () => {
  const found = [];
  for (const capture of JSON.parse(text)) found.push(await screens(capture));
  process.stdout.write(JSON.stringify(found));
});
