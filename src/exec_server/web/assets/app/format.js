// Facts as words: sizes, times, states, and why a process has ended.

export function bytes(count) {
  if (count === null || count === undefined) return "";
  const units = ["B", "KB", "MB", "GB", "TB"];
  let unit = 0;
  while (count >= 1000 && unit < units.length - 1) {
    count /= 1000;
    unit += 1;
  }
  return `${unit && count < 100 ? count.toFixed(1) : Math.round(count)} ${units[unit]}`;
}

export function seconds(value) {
  if (value < 1) return `${Math.round(value * 1000)} ms`;
  if (value < 60) return `${value.toFixed(value < 10 ? 1 : 0)} s`;
  if (value < 3600) return `${Math.floor(value / 60)} min ${Math.round(value % 60)} s`;
  if (value < 86400) return `${Math.floor(value / 3600)} h ${Math.floor((value % 3600) / 60)} min`;
  return `${Math.floor(value / 86400)} d ${Math.floor((value % 86400) / 3600)} h`;
}

// A moment of a recording: 0:07, 12:30 or 1:02:03.
export function clock(value) {
  const whole = Math.floor(Math.max(0, value));
  const two = (number) => String(number).padStart(2, "0");
  const minutes = Math.floor(whole / 60);
  if (minutes < 60) return `${minutes}:${two(whole % 60)}`;
  return `${Math.floor(minutes / 60)}:${two(minutes % 60)}:${two(whole % 60)}`;
}

export function ago(milliseconds) {
  return milliseconds ? `${seconds(Math.max(0, (Date.now() - milliseconds) / 1000))} ago` : "";
}

export function moment(milliseconds) {
  return milliseconds ? new Date(milliseconds).toLocaleString() : "";
}

const PLAIN = /^[\w@%+=:,./-]+$/;

export function commandLine(argv) {
  // A line that was given to a shell is shown as it was typed.
  if (argv.length === 3 && argv[1] === "-c") return argv[2];
  return argv.map((word) => (PLAIN.test(word) ? word : `'${word.replaceAll("'", "'\\''")}'`)).join(" ");
}

// A login shell is known by its program.
export function defaultTitle({ name, argv }) {
  if (name) return harmless(name);
  return argv.length === 2 && argv[1] === "-l" ? argv[0].split("/").at(-1) : commandLine(argv);
}

// Control and direction characters could make a title look like something else.
export function harmless(text, most = 80) {
  const plain = String(text).replace(/[\p{Cc}\p{Cf}\p{Zl}\p{Zp}]/gu, "");
  return plain.length > most ? `${plain.slice(0, most - 1)}…` : plain;
}

export function processState(facts) {
  if (facts.state === "lost") return { kind: "bad", text: facts.lost ? `lost: ${facts.lost}` : "lost" };
  if (facts.state === "left") return { kind: "idle", text: "left" };
  if (facts.state === "running" || facts.state === "starting") return { kind: "good", text: facts.state };
  const code = facts.exitCode;
  if (code === 0) return { kind: "idle", text: "exited 0" };
  return { kind: "bad", text: code === null || code === undefined ? "exited" : `exited ${code}` };
}

const CAUSES = {
  exited: "The program ended by itself.",
  signal: "A signal ended it.",
  memory: "The kernel ended it, because its memory limit was reached.",
  outerMemory: "The kernel ended it, because the memory of a group around it was used up.",
  limit: "The server ended it, because a limit was reached.",
  sandbox: "Its sandbox could not be kept up.",
  terminated: "A client asked for its end.",
  lost: "Its exit status is unknown.",
  unknown: "The cause is unknown.",
};

export function endWords(end) {
  if (!end) return "";
  const parts = [CAUSES[end.cause] ?? end.cause];
  if (end.signal) parts.push(`Signal: ${end.signal}.`);
  if (end.limit) parts.push(`Limit: ${end.limit}.`);
  if (end.by?.principal) parts.push(`By: ${end.by.principal}.`);
  else if (end.by?.exe || end.by?.pid) parts.push(`By: ${end.by.exe ?? ""} ${end.by.pid ?? ""}.`);
  if (end.evidence) parts.push(end.evidence);
  return parts.join(" ");
}

export function usageWords(usage) {
  if (!usage) return "";
  const parts = [];
  if (usage.wall !== undefined) parts.push(`took ${seconds(usage.wall)}`);
  if (usage.cpu !== undefined) parts.push(`CPU ${seconds(usage.cpu)}`);
  if (usage.peakMemory !== undefined) parts.push(`memory ${bytes(usage.peakMemory)}`);
  if (usage.read !== undefined) parts.push(`read ${bytes(usage.read)}`);
  if (usage.written !== undefined) parts.push(`written ${bytes(usage.written)}`);
  return parts.join(" · ");
}
