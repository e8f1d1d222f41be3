// Numbers as people read them.

const UNITS = ["B", "KB", "MB", "GB", "TB", "PB"];

export function bytes(value) {
  let unit = 0;
  while (Math.abs(value) >= 1000 && unit < UNITS.length - 1) {
    value /= 1000;
    unit += 1;
  }
  return `${unit && Math.abs(value) < 10 ? value.toFixed(1) : Math.round(value)} ${UNITS[unit]}`;
}

export const count = (value) => Number(value).toLocaleString("en-US");

export function rate(value) {
  if (value === null || value === undefined) return "–";
  if (value > 0 && value < 10) return value.toFixed(1);
  return count(Math.round(value));
}

export function seconds(value) {
  if (value < 1) return `${Math.round(value * 1000)} ms`;
  if (value < 60) return `${value < 10 ? value.toFixed(1) : Math.round(value)} s`;
  if (value < 3600) return `${Math.floor(value / 60)} min ${Math.round(value % 60)} s`;
  if (value < 86400) return `${Math.floor(value / 3600)} h ${Math.floor((value % 3600) / 60)} min`;
  return `${Math.floor(value / 86400)} d ${Math.floor((value % 86400) / 3600)} h`;
}

// "once", "2 times"
export const times = (value) => (value === 1 ? "once" : `${count(value)} times`);

// Milliseconds since 1970 as local time; the foot of each page names the zone.
export function time(ms) {
  const at = new Date(ms);
  return `${at.toLocaleDateString("sv-SE")} ${at.toLocaleTimeString("sv-SE")}.${String(at.getMilliseconds()).padStart(3, "0")}`;
}

// The zone of all times: "Europe/Berlin, now UTC+01:00".
export function zone() {
  const minutes = -new Date().getTimezoneOffset();
  const [hours, rest] = [Math.floor(Math.abs(minutes) / 60), Math.abs(minutes) % 60].map((each) => String(each).padStart(2, "0"));
  return `${Intl.DateTimeFormat().resolvedOptions().timeZone}, now UTC${minutes < 0 ? "-" : "+"}${hours}:${rest}`;
}

const UNSEEN = /[\u0000-\u0008\u000b-\u001f\u007f-\u009f\u061c\u200b\u200e\u200f\u2028-\u202e\u2060-\u2069\ufeff]/g;

// Text of others, with ⟨its number⟩ for each character that would control a terminal, or hide or
// turn the text around it.
export function visible(text) {
  return text.replace(UNSEEN, (letter) => {
    const code = letter.charCodeAt(0).toString(16).toUpperCase();
    return `\u27e8${code.length > 2 ? `U+${code.padStart(4, "0")}` : code.padStart(2, "0")}\u27e9`;
  });
}
