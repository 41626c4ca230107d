// The events of a recording, read as they are needed: the screen of a moment, and what follows it.

// So many seconds of output are read before they are shown.
const AHEAD = 5;

export class RecordedStream {
  // words name a recording, or an open terminal of the page.
  constructor(link, words) {
    this._link = link;
    this._words = words;
    this._events = [];
    this._place = null;
    this._isAsking = false;
    this._turn = 0;
    this.isAtEnd = false;
  }

  async open() {
    const facts = await this._link.call("recording.open", this._words);
    if (!this._words.name) this._words.part = facts.part;
    return facts;
  }

  // The screen of a moment; null if another one was asked for meanwhile.
  async screen(time) {
    const turn = ++this._turn;
    this._events = [];
    this._place = null;
    const found = await this._link.call("recording.screen", { ...this._words, time });
    if (turn !== this._turn) return null;
    this._place = { offset: found.offset, time: found.time };
    this.isAtEnd = false;
    return { ...found, screen: Uint8Array.from(atob(found.screen), (each) => each.charCodeAt(0)) };
  }

  // The time of the next event; null if it is not known yet, or if there is none.
  get next() {
    return this._events.length ? this._events[0][0] : null;
  }

  // The events up to a moment. More are asked for when few are left.
  take(until) {
    let count = 0;
    while (count < this._events.length && this._events[count][0] <= until) count += 1;
    const taken = this._events.splice(0, count);
    const last = this._events.at(-1);
    if (!this.isAtEnd && (!last || last[0] < until + AHEAD)) this._read();
    return taken;
  }

  // The next event alone, for steps; null at the end.
  async step() {
    if (!this._events.length && !this.isAtEnd) await this._read();
    return this._events.shift() ?? null;
  }

  // A recording that grows may have more.
  lookAgain() {
    this.isAtEnd = false;
  }

  async _read() {
    if (this._isAsking || !this._place) return;
    this._isAsking = true;
    const turn = this._turn;
    try {
      const found = await this._link.call("recording.events", { ...this._words, ...this._place });
      if (turn !== this._turn) return;
      this._events.push(...found.events);
      this._place = { offset: found.offset, time: found.time };
      this.isAtEnd = found.end;
    } catch (error) {
      if (turn === this._turn) this.isAtEnd = true;
    } finally {
      this._isAsking = false;
    }
  }
}
