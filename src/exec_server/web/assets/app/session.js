// Signing in: a one-time link or a token becomes a cookie, which scripts cannot read, and a key,
// which only this origin can read.

const KEY = "key";
const HEADER = "X-Exec-Server-Key";

export function key() {
  return localStorage.getItem(KEY) ?? "";
}

export function keyHeaders() {
  return { [HEADER]: key() };
}

// The secret of a one-time link, which is removed from the address at once.
export function takeLinkSecret() {
  const found = /^#token=([\w-]{20,200})$/.exec(location.hash);
  if (location.hash) history.replaceState(null, "", "/");
  return found ? found[1] : null;
}

export async function sessionState() {
  const answer = await fetch("/session", { headers: keyHeaders() });
  if (!answer.ok) throw new Error((await answer.json()).error);
  return answer.json();
}

export async function signIn(token) {
  const answer = await fetch("/session", { method: "POST", body: JSON.stringify({ token }) });
  const facts = await answer.json();
  if (!answer.ok) throw new Error(facts.error);
  localStorage.setItem(KEY, facts.key);
}

export async function signOut() {
  await fetch("/session", { method: "DELETE", headers: keyHeaders() });
  localStorage.removeItem(KEY);
}
