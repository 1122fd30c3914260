// The connection: a ticket, a websocket, pings that notice a dead line, and a way back. Keys on a dead line are dropped.
import { post } from "./api.js";

const PING_MS = 1000;
const SILENT_MS = 1900; // a ping without an answer for so long: within 3 s of the loss, as a tick is 1 s
const GIVE_UP_MS = 8000; // a sleeping laptop or a dead tunnel closes no socket: only silence tells
const RETRY_FOR_MS = 30000;
const RETRY_SLOWLY_MS = 5000;
const PIECE = 8192; // characters: as JSON well under the server's 64 KiB a message
const ENDED = { 1008: "The server refused a message.", 1013: "As many sessions are open as are allowed.", 1011: "The app could not be started." };
const VIEW = "sandbox-console.view";

const now = () => Math.round(performance.timeOrigin + performance.now());

export class Line {
  #socket = null;
  #state = "connecting";
  #asked = 0; // when the ping was sent that has no answer yet
  #typed = []; // what was sent since the last answered ping
  #lostAt = 0;
  #again = 0; // the timer of the next attempt to connect
  #attempt = 0; // the button may begin one while another waits for its ticket

  // `on` has: size(), output(bytes), message(kind, value), ready(), state(name), tell(text), hush(), unsent(text, sure)
  constructor(on) {
    this.on = on;
    setInterval(() => this.#tick(), PING_MS);
    window.addEventListener("online", () => this.#state === "lost" && this.connect());
  }

  get isShown() {
    return this.#socket !== null;
  }

  send(...message) {
    if (this.#socket?.readyState === WebSocket.OPEN) this.#socket.send(JSON.stringify(message));
  }

  type(text) {
    if (this.#state !== "open") return this.on.unsent(text, true);
    const at = now();
    for (let from = 0; from < text.length; ) {
      let end = Math.min(from + PIECE, text.length);
      const last = text.charCodeAt(end - 1);
      if (end < text.length && last >= 0xd800 && last <= 0xdbff) end -= 1; // keep a surrogate pair together
      this.send("stdin", text.slice(from, end), at);
      from = end;
    }
    this.#typed.push({ at, text });
  }

  begin() {
    this.#lostAt = 0;
    return this.connect();
  }

  async connect() {
    clearTimeout(this.#again);
    const mine = ++this.#attempt;
    this.on.hush();
    let ticket;
    try {
      ticket = await this.#ticket();
    } catch (error) {
      if (mine === this.#attempt) error.final ? this.#over(error.message) : this.#retry();
      return;
    }
    if (mine === this.#attempt) this.#open(ticket);
  }

  async #ticket() {
    const { ticket, gone } = await post("ticket", { ...this.on.size(), view: sessionStorage.getItem(VIEW) });
    if (!gone) return ticket;
    sessionStorage.removeItem(VIEW);
    throw Object.assign(new Error(`The session that was here is gone: ${gone}. "Open again" begins a new one.`), { final: true });
  }

  #open(ticket) {
    const address = new URL("ws", location.href);
    address.protocol = location.protocol === "https:" ? "wss:" : "ws:";
    const opened = new WebSocket(address, ["sandbox-console.v1", `ticket.${ticket}`]);
    opened.binaryType = "arraybuffer";
    opened.onmessage = ({ data }) => opened === this.#socket && this.#take(data);
    opened.onclose = ({ code, reason }) => opened === this.#socket && this.#closed(code, reason);
    this.#socket = opened;
    this.#asked = now();
    this.#typed = [];
  }

  #take(data) {
    if (typeof data !== "string") return this.on.output(new Uint8Array(data));
    const [kind, value] = JSON.parse(data);
    if (kind === "pong") return this.#answered(Number(value));
    if (kind === "late") return this.on.unsent(value, true);
    if (kind !== "ready") return this.on.message(kind, value);
    sessionStorage.setItem(VIEW, value);
    this.#lostAt = 0;
    this.#asked = 0;
    this.#enter("open");
    this.on.ready();
    this.#ping();
  }

  #answered(at) {
    this.#asked = 0;
    this.#typed = this.#typed.filter((typed) => typed.at > at);
    if (this.#state === "silent") this.#enter("open");
  }

  #ping() {
    this.#asked = now();
    this.send("ping", String(this.#asked));
  }

  #tick() {
    if (this.#socket === null) return;
    const silent = this.#asked ? now() - this.#asked : 0;
    if (silent > GIVE_UP_MS) return this.#lose();
    if (this.#state === "open" && silent > SILENT_MS) this.#enter("silent");
    else if (this.#state === "open" && !this.#asked) this.#ping();
  }

  #lose() {
    const silent = this.#socket;
    this.#socket = null;
    silent.close();
    const typed = this.#typed.map(({ text }) => text).join("");
    if (typed) this.on.unsent(typed, false);
    this.#retry();
  }

  #closed(code, reason) {
    this.#socket = null;
    if (code === 4001) return this.#over("This session was opened in another tab.");
    if (code < 4000 && !(code in ENDED)) return this.#retry();
    sessionStorage.removeItem(VIEW);
    this.#over(reason ? `Session over: ${reason}.` : (ENDED[code] ?? "The session has ended."));
  }

  #retry() {
    this.#lostAt ||= performance.now();
    this.#enter("lost");
    const long = performance.now() - this.#lostAt > RETRY_FOR_MS;
    this.on.tell(long ? "The server does not answer. Does sandbox-console serve still run? Trying again…" : "Connection lost. Trying again…");
    this.#again = setTimeout(() => this.connect(), long ? RETRY_SLOWLY_MS : 500);
  }

  #over(text) {
    this.#enter("over");
    this.on.tell(text);
  }

  #enter(state) {
    this.#state = state;
    this.on.state(state);
  }
}
