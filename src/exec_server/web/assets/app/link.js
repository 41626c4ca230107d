// The WebSocket to the program: calls and answers, events, and channels of bytes.

import { key, sessionState } from "./session.js";

const FIRST_PAUSE = 300;
const LAST_PAUSE = 5000;
const CALL_TIMEOUT = 130000;
const NOT_SIGNED_IN = 4401;
const PROGRAM_ENDS = 4001;

const OUTPUT = 0;
const FRAME = 1;
const TYPED = 0;
const DRAWN = 1;

export class CallError extends Error {
  constructor(facts) {
    super(facts.message);
    this.code = facts.code;
  }
}

export class Link extends EventTarget {
  constructor() {
    super();
    // "connecting", "open", "away", "signed out" or "ended".
    this.state = "connecting";
    this._socket = null;
    this._calls = new Map();
    this._lastId = 0;
    this._channels = new Map();
    this._lastChannel = 0;
    this._pause = FIRST_PAUSE;
    this._timer = 0;
    for (const name of ["online", "focus", "pageshow"]) addEventListener(name, () => this._hurry());
    document.addEventListener("visibilitychange", () => {
      this._hurry();
      this._tellHidden();
    });
  }

  open() {
    clearTimeout(this._timer);
    const scheme = location.protocol === "https:" ? "wss:" : "ws:";
    const socket = new WebSocket(`${scheme}//${location.host}/socket`);
    socket.binaryType = "arraybuffer";
    this._socket = socket;
    socket.onopen = () => socket.send(JSON.stringify({ key: key() }));
    socket.onmessage = (event) => this._receive(event.data);
    socket.onclose = (event) => this._lost(socket, event.code);
  }

  async call(name, words = {}) {
    if (this.state !== "open") throw new CallError({ message: "the program is not reachable now" });
    const id = ++this._lastId;
    return new Promise((resolve, reject) => {
      const late = () => this._settle(id, { error: { message: "the program does not answer" } });
      this._calls.set(id, { resolve, reject, timer: setTimeout(late, CALL_TIMEOUT) });
      this._socket.send(JSON.stringify({ id, call: name, words }));
    });
  }

  on(event, listener) {
    this.addEventListener(event, (each) => listener(each.detail));
  }

  // Channels: the bytes of one terminal.

  async follow(id, receive) {
    const channel = ++this._lastChannel;
    this._channels.set(channel, receive);
    try {
      const facts = await this.call("shown.follow", { id, channel });
      return { channel, facts };
    } catch (error) {
      this._channels.delete(channel);
      throw error;
    }
  }

  unfollow(channel) {
    this._channels.delete(channel);
    if (this.state === "open") this.call("shown.unfollow", { channel }).catch(() => {});
  }

  type(channel, bytes) {
    return this._sendBytes(channel, TYPED, bytes);
  }

  drawn(channel, count) {
    const bytes = new Uint8Array(4);
    new DataView(bytes.buffer).setUint32(0, count);
    return this._sendBytes(channel, DRAWN, bytes);
  }

  _sendBytes(channel, kind, bytes) {
    if (this.state !== "open") return false;
    const message = new Uint8Array(5 + bytes.length);
    const view = new DataView(message.buffer);
    view.setUint32(0, channel);
    view.setUint8(4, kind);
    message.set(bytes, 5);
    this._socket.send(message);
    return true;
  }

  // The socket.

  _receive(data) {
    if (data instanceof ArrayBuffer) {
      const view = new DataView(data);
      const kind = view.getUint8(4);
      const receive = this._channels.get(view.getUint32(0));
      if (receive && (kind === OUTPUT || kind === FRAME)) receive(new Uint8Array(data, 5), kind === FRAME);
      return;
    }
    const message = JSON.parse(data);
    if ("id" in message) this._settle(message.id, message);
    else if (message.event === "welcome") this._welcomed(message.facts);
    else this._emit(message.event, message.facts);
  }

  _welcomed(facts) {
    this._pause = FIRST_PAUSE;
    this._set("open");
    this._tellHidden();
    this._emit("welcome", facts);
  }

  _tellHidden() {
    if (this.state === "open") this.call("tab.hide", { hidden: document.hidden }).catch(() => {});
  }

  _settle(id, message) {
    const call = this._calls.get(id);
    if (!call) return;
    this._calls.delete(id);
    clearTimeout(call.timer);
    if (message.error) call.reject(new CallError(message.error));
    else call.resolve(message.result);
  }

  _lost(socket, code) {
    if (socket !== this._socket) return;
    this._channels.clear();
    for (const id of [...this._calls.keys()]) {
      this._settle(id, { error: { message: "the connection to the program was lost" } });
    }
    if (code === NOT_SIGNED_IN) {
      this._set("signed out");
      return;
    }
    // A program that has said that it ends is not expected back, but it may come.
    this._set(code === PROGRAM_ENDS || this.state === "ended" ? "ended" : "away");
    this._timer = setTimeout(() => this._again(), this._pause);
    this._pause = Math.min(2 * this._pause, LAST_PAUSE);
  }

  // A program that was started again knows no session of the one before. A socket does not say so.
  async _again() {
    const state = await sessionState().catch(() => null);
    if (state && !state.signedIn) this._set("signed out");
    else this.open();
  }

  _hurry() {
    if ((this.state === "away" || this.state === "ended") && !document.hidden) {
      if (this._socket.readyState === WebSocket.CLOSED) this.open();
    }
  }

  _set(state) {
    if (this.state !== state) {
      this.state = state;
      this._emit("state", state);
    }
  }

  _emit(name, detail) {
    this.dispatchEvent(new CustomEvent(name, { detail }));
  }
}
